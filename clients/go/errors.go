package gamecore

// A LostError says that the connection broke or could not be made, or that no reply came in time. Nobody knows whether the
// last request was taken. Begin a new episode with Start.
type LostError struct {
	Text string
}

func (e *LostError) Error() string { return e.Text }

// A RefusedError says that the server refuses a request. The request has changed nothing.
type RefusedError struct {
	// Status is the kind of refusal, in the numbers of HTTP: 401 the token, 404 no such session, 429 too many sessions.
	Status int
	Text   string
}

func (e *RefusedError) Error() string { return e.Text }
