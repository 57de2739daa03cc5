package gamecore

import (
	"errors"
	"time"
)

// Options say how a client waits, and what it sends.
type Options struct {
	// Timeout is the longest time for one reply. 0: a minute.
	Timeout time.Duration
	// Patience is how long Start tries while the server is away or full. 0: a minute. Negative: it tries once.
	Patience time.Duration
	// Delta sends of each tick only what changed since the one before.
	Delta bool
}

const (
	usualWait = time.Minute
	mostKey   = 4096
	mostText  = 1 << 16
	mostReply = 1 << 30

	statusOk          = 200
	statusNoSession   = 404
	statusIsOpen      = 409
	statusBaseMissing = 412
	statusTooMany     = 429
	statusUnavailable = 503
)

var pauses = [...]time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// errBaseMissing: the server lacks the base of a delta, and has not taken the request.
var errBaseMissing = errors.New("the server lacks the base of a delta")

// base is a body that deltas may refer to.
type base struct {
	number uint64 // id of the request that held it
	body   []byte
}

// session is one agent's session: requests that wait for their replies. It connects, and connects again. It is used by one
// goroutine at a time.
type session struct {
	host       string
	port       uint16
	key, token string
	options    Options

	connection *connection // nil: there is none
	name       string
	isStarted  bool
	number     uint64
	request    []byte
	base       *base // the latest tick that the server has answered; nil: the next one is a key frame
	giveUp     chan struct{}
}

// start begins an episode. One that is still open on the server ends as truncated.
func (s *session) start(name string) error {
	if s.isStarted && name != s.name {
		s.stopQuietly()
	}
	s.name = name
	until := time.Now().Add(s.options.Patience)
	for tries := 0; ; tries++ {
		err := s.tryStart()
		if err == nil {
			s.isStarted = true
			return nil
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			// The episode before was lost with its connection, and the server still has it.
			s.isStarted = refused.Status == statusIsOpen
			if !s.isStarted && !mayPass(refused.Status) {
				return err
			}
		}
		if time.Now().After(until) {
			return err
		}
		if !s.isStarted && !s.pause(tries) {
			return err
		}
	}
}

func (s *session) tryStart() error {
	if s.isStarted {
		s.isStarted = false
		_, err := s.ask(Stop, nil)
		var refused *RefusedError
		// The server may have ended it by itself.
		isEnded := errors.As(err, &refused) && refused.Status == statusNoSession
		if err != nil && !isEnded {
			return err
		}
	}
	_, err := s.ask(Start, nil)
	return err
}

// mayPass says whether another try may succeed.
func mayPass(status int) bool {
	return status == statusTooMany || status == statusUnavailable
}

// pause waits before the next try. False: start shall try no longer.
func (s *session) pause(tries int) bool {
	timer := time.NewTimer(pauses[least(tries, len(pauses)-1)])
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.giveUp:
		return false
	}
}

// tick returns the reply. After a RefusedError the episode is as it was before.
func (s *session) tick(body []byte) ([]byte, error) { return s.ask(Tick, body) }

// stop ends the episode.
func (s *session) stop(body []byte) error {
	_, err := s.ask(Stop, body)
	if err == nil {
		s.isStarted = false
	}
	return err
}

// stopQuietly ends an episode whose agent plays another one. If the server cannot be asked, it ends it by itself.
func (s *session) stopQuietly() {
	s.isStarted = false
	_, _ = s.ask(Stop, nil)
}

func (s *session) close() {
	if s.connection != nil {
		s.connection.close()
		s.connection = nil
	}
}

// ask returns the reply to a request, a RefusedError, or a LostError after which the connection is closed.
func (s *session) ask(kind Kind, body []byte) ([]byte, error) {
	deadline := time.Now().Add(s.options.Timeout)
	if err := s.connect(deadline); err != nil {
		s.close()
		return nil, err
	}
	reply, err := s.exchange(kind, body)
	if errors.Is(err, errBaseMissing) {
		// There is no base now, so this time a key frame is sent.
		reply, err = s.exchange(kind, body)
	}
	var lost *LostError
	if errors.As(err, &lost) {
		s.close()
	}
	return reply, err
}

func (s *session) connect(deadline time.Time) error {
	if s.connection != nil {
		s.connection.expireAt(deadline)
		return nil
	}
	s.base = nil
	made, err := dial(s.host, s.port, deadline)
	if err != nil {
		return err
	}
	s.connection = made
	if err := made.send(greeting(s.key, s.token)); err != nil {
		return err
	}
	bytes, err := made.receive(welcomeSize, serverClosed+"; it may speak version 1 only")
	if err != nil {
		return err
	}
	head := readWelcome(bytes)
	if !head.isValid || head.textSize > mostText {
		return &LostError{"the server's bytes are no welcome of Gamecore"}
	}
	text, err := made.receive(uint64(head.textSize), serverClosed)
	if err == nil && head.status != statusOk {
		return &RefusedError{head.status, string(text)}
	}
	return err
}

func (s *session) exchange(kind Kind, body []byte) ([]byte, error) {
	s.number++
	head, sent := requestHead{number: s.number, kind: kind}, body
	isKept := s.options.Delta && kind == Tick
	if isKept {
		head.encoding = keyFrame
		if s.base != nil {
			if delta, ok := encode(s.base.body, body); ok {
				head.encoding, head.base, sent = deltaFrame, s.base.number, delta
			}
		}
	} else {
		s.base = nil
	}
	s.request = appendRequest(s.request[:0], head, s.name, sent)
	if err := s.connection.send(s.request); err != nil {
		return nil, err
	}
	reply, err := s.reply()
	if err == nil && isKept {
		s.base = &base{s.number, append([]byte(nil), body...)}
	}
	return reply, err
}

func (s *session) reply() ([]byte, error) {
	bytes, err := s.connection.receive(replySize, serverClosed)
	if err != nil {
		return nil, err
	}
	head := readReply(bytes)
	if head.number != s.number || head.bodySize > mostReply {
		return nil, &LostError{"the server's bytes are no reply of Gamecore"}
	}
	body, err := s.connection.receive(head.bodySize, serverClosed)
	switch {
	case err != nil:
		return nil, err
	case head.status == statusBaseMissing && s.base != nil:
		s.base = nil
		return nil, errBaseMissing
	case head.status != statusOk:
		return nil, &RefusedError{head.status, string(body)}
	}
	return body, nil
}
