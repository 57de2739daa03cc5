"""The messages of ML-Agents, as the public definition numbers them, and the packets of its side channels.

Only the fields that a trainer or a headless double needs are listed. Source: ``communicator_objects/*.proto`` and
``side_channel/`` of the package ``mlagents-envs`` 1.1.0 (https://github.com/Unity-Technologies/ml-agents).
"""

from collections.abc import Mapping
from struct import pack
from uuid import UUID

from penstock.messages import Fields, message_classes

__all__ = [
    "CONTINUES",
    "ENDS",
    "METHOD",
    "PNG",
    "RESET",
    "VERSION",
    "AgentInfo",
    "Message",
    "engine_packets",
    "parameter_packets",
]

METHOD = "/communicator_objects.UnityToExternalProto/Exchange"
"""The game calls it. Each call says what has happened in the game. The answer says what the game is to do next."""
VERSION = "1.5.0"
"""Of the protocol."""
CONTINUES, ENDS = 200, 400
"""Values of ``HeaderProto.status``."""
RESET = 1
"""Value of ``UnityRLInputProto.command``. 0: the agents act."""
PNG = 1
"""Value of ``ObservationProto.compression_type``. 0: the numbers stand in ``float_data``."""

_FIELDS: Fields = {
    "HeaderProto": {"status": (1, "int32"), "message": (2, "string")},
    "AgentActionProto": {"continuous_actions": (6, "repeated float"), "discrete_actions": (7, "repeated int32")},
    "ActionSpecProto": {
        "num_continuous_actions": (1, "int32"),
        "num_discrete_actions": (2, "int32"),
        "discrete_branch_sizes": (3, "repeated int32"),
    },
    "BrainParametersProto": {"brain_name": (7, "string"), "action_spec": (9, "ActionSpecProto")},
    "ObservationProto": {
        "shape": (1, "repeated int32"),
        "compression_type": (2, "int32"),
        "compressed_data": (3, "oneof bytes"),
        "float_data": (4, "oneof ObservationProto.FloatData"),
        "name": (8, "string"),
    },
    "ObservationProto.FloatData": {"data": (1, "repeated float")},
    "AgentInfoProto": {
        "reward": (7, "float"),
        "done": (8, "bool"),
        "max_step_reached": (9, "bool"),
        "id": (10, "int32"),
        "action_mask": (11, "repeated bool"),
        "observations": (13, "repeated ObservationProto"),
        "group_reward": (15, "float"),
    },
    "UnityRLCapabilitiesProto": {
        "baseRLCapabilities": (1, "bool"),
        "concatenatedPngObservations": (2, "bool"),
        "compressedChannelMapping": (3, "bool"),
        "hybridActions": (4, "bool"),
        "variableLengthObservation": (6, "bool"),
        "multiAgentGroups": (7, "bool"),
    },
    "UnityRLInitializationInputProto": {
        "seed": (1, "int32"),
        "communication_version": (2, "string"),
        "package_version": (3, "string"),
        "capabilities": (4, "UnityRLCapabilitiesProto"),
        "num_areas": (5, "int32"),
    },
    "UnityRLInitializationOutputProto": {
        "name": (1, "string"),
        "communication_version": (2, "string"),
        "brain_parameters": (5, "repeated BrainParametersProto"),
        "package_version": (7, "string"),
        "capabilities": (8, "UnityRLCapabilitiesProto"),
    },
    "UnityRLInputProto": {
        "agent_actions": (1, "map UnityRLInputProto.ListAgentActionProto"),
        "command": (4, "int32"),
        "side_channel": (5, "bytes"),
    },
    "UnityRLInputProto.ListAgentActionProto": {"value": (1, "repeated AgentActionProto")},
    "UnityRLOutputProto": {
        "agentInfos": (2, "map UnityRLOutputProto.ListAgentInfoProto"),
        "side_channel": (3, "bytes"),
    },
    "UnityRLOutputProto.ListAgentInfoProto": {"value": (1, "repeated AgentInfoProto")},
    "UnityInputProto": {
        "rl_input": (1, "UnityRLInputProto"),
        "rl_initialization_input": (2, "UnityRLInitializationInputProto"),
    },
    "UnityOutputProto": {
        "rl_output": (1, "UnityRLOutputProto"),
        "rl_initialization_output": (2, "UnityRLInitializationOutputProto"),
    },
    "UnityMessageProto": {
        "header": (1, "HeaderProto"),
        "unity_output": (2, "UnityOutputProto"),
        "unity_input": (3, "UnityInputProto"),
    },
}

_CLASSES = message_classes("communicator_objects", _FIELDS)
Message = _CLASSES["UnityMessageProto"]
"""What both sides send. All other messages are parts of it."""
AgentInfo = _CLASSES["AgentInfoProto"]
"""What one agent says: it asks for an action, or its episode has ended (``done``)."""

_ENGINE = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
_PARAMETERS = UUID("534c891e-810f-11ea-a9d0-822485860400")
_TIME_SCALE, _TARGET_FRAME_RATE, _CAPTURE_FRAME_RATE = 2, 3, 4
_FLOAT = 0


def engine_packets(time_scale: float) -> bytes:
    """Let the game run ``time_scale`` times as fast as the clock, in frames of 1/60 s, as fast as it can.

    These are the settings of ``mlagents-learn``.
    """
    return b"".join(
        (
            _packet(_ENGINE, pack("<if", _TIME_SCALE, time_scale)),
            _packet(_ENGINE, pack("<ii", _TARGET_FRAME_RATE, -1)),
            _packet(_ENGINE, pack("<ii", _CAPTURE_FRAME_RATE, 60)),
        )
    )


def parameter_packets(parameters: Mapping[str, float]) -> bytes:
    """Set parameters of the game by their names."""
    return b"".join(
        _packet(_PARAMETERS, pack("<i", len(name)) + name.encode("ascii") + pack("<if", _FLOAT, value))
        for name, value in parameters.items()
    )


def _packet(channel: UUID, data: bytes) -> bytes:
    return channel.bytes_le + pack("<i", len(data)) + data
