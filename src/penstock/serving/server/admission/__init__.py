"""What a server lets in: from whom (tokens), how much (limits), how large JSON may be, and how a request is refused.

Knows no sessions and no policies. Each protocol says a refusal in its own words.
"""
