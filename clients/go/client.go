// Package gamecore is a client of Gamecore: one agent of a game asks a run that trains, or a served policy, for actions.
//
//	client, err := gamecore.CreateClient("localhost", 8001, nil, "", "", gamecore.Options{})
//	err = client.Start("my-game", "0", nil)
//	action, err := client.Tick([]byte(`{"obs": [0.1, 0.2]}`))
//	err = client.Stop([]byte(`{"obs": [0.3, 0.4], "reward": 1.0, "terminated": true}`))
//
// Without a callback each call waits for its reply, and returns a *LostError or a *RefusedError if there is none. With one,
// calls return at once; the replies come to the callback in the order of the calls, from a goroutine of the client. What
// bodies hold is agreed elsewhere.
package gamecore

import (
	"errors"
	"fmt"
	"sync"
)

// Reply is what came of one call.
type Reply struct {
	Kind Kind
	// Status is 200 if the call was answered, 0 if the connection was lost. With any other the server refuses.
	Status int
	// Body is the answer, or the text that says why there is none.
	Body []byte
}

// IsAnswer says whether the call was answered.
func (r Reply) IsAnswer() bool { return r.Status == statusOk }

// Callback takes replies. It may call Start, Tick and Stop of its client, which then only take the request, but not Close.
type Callback func(Reply)

// Client is the client of one agent. It is called from one goroutine, and from its callback.
type Client struct {
	session session
	usual   Callback // of CreateClient

	mutex     sync.Mutex // guards what follows
	idle      *sync.Cond // isWorking has become false
	callback  Callback   // of the present episode
	calls     []call     // that wait
	isWorking bool       // a goroutine carries out calls
	isClosed  bool
}

type call struct {
	kind     Kind
	name     string // of the session: of a start
	body     []byte
	callback Callback
}

// CreateClient makes the client of one agent. Nothing is connected before Start.
//
// callback may be nil: then calls wait for their replies. key may be empty, or "policy=NAME" for one of several policies of
// a server. token is for a server that wants one. A key or token of more than 4096 bytes is an error.
func CreateClient(host string, port uint16, callback Callback, key, token string, options Options) (*Client, error) {
	if len(key) > mostKey || len(token) > mostKey {
		return nil, fmt.Errorf("a key or token of Gamecore has at most %d bytes", mostKey)
	}
	if options.Timeout == 0 {
		options.Timeout = usualWait
	}
	if options.Patience == 0 {
		options.Patience = usualWait
	}
	made := &Client{
		session: session{
			host: host, port: port, key: key, token: token, options: options, giveUp: make(chan struct{}),
		},
		usual:    callback,
		callback: callback,
	}
	made.idle = sync.NewCond(&made.mutex)
	return made, nil
}

// Start begins an episode of the session `<game>-agent-<agent>`. It connects, and tries again while the server is away or
// full. A callback takes the place of that of CreateClient until the next Start; nil: there is no other one.
func (c *Client) Start(game, agent string, callback Callback) error {
	if callback == nil {
		callback = c.usual
	}
	c.mutex.Lock()
	c.callback = callback
	c.mutex.Unlock()
	_, err := c.take(call{kind: Start, name: game + "-agent-" + agent})
	return err
}

// Tick returns the reply to a tick. With a callback: nil, and the reply comes there.
func (c *Client) Tick(body []byte) ([]byte, error) {
	return c.take(call{kind: Tick, body: body})
}

// Stop ends the episode. With an empty body the last action counts as not taken.
func (c *Client) Stop(body []byte) error {
	_, err := c.take(call{kind: Stop, body: body})
	return err
}

// Close waits for the request that is under way, and closes the connection. Requests behind it are forgotten, and an open
// episode ends as truncated.
func (c *Client) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.isClosed {
		c.isClosed = true
		close(c.session.giveUp)
	}
	c.calls = nil
	c.waitUntilIdle()
	c.session.close()
}

// take carries a call out, or leaves it to a goroutine if there is a callback.
func (c *Client) take(given call) ([]byte, error) {
	c.mutex.Lock()
	if c.isClosed {
		c.mutex.Unlock()
		return nil, &LostError{"the client is closed"}
	}
	given.callback = c.callback
	if given.callback == nil {
		c.waitUntilIdle()
		c.mutex.Unlock()
		return c.answer(given)
	}
	defer c.mutex.Unlock()
	given.body = append([]byte(nil), given.body...)
	c.calls = append(c.calls, given)
	if !c.isWorking {
		c.isWorking = true
		go c.work()
	}
	return nil, nil
}

// waitUntilIdle needs the mutex.
func (c *Client) waitUntilIdle() {
	for c.isWorking {
		c.idle.Wait()
	}
}

// work carries out calls until none waits.
func (c *Client) work() {
	c.mutex.Lock()
	for len(c.calls) > 0 {
		next := c.calls[0]
		c.calls = c.calls[1:]
		c.mutex.Unlock()
		next.callback(c.replyTo(next))
		c.mutex.Lock()
	}
	c.isWorking = false
	c.idle.Broadcast()
	c.mutex.Unlock()
}

func (c *Client) replyTo(given call) Reply {
	body, err := c.answer(given)
	var refused *RefusedError
	switch {
	case err == nil:
		return Reply{given.kind, statusOk, body}
	case errors.As(err, &refused):
		return Reply{given.kind, refused.Status, []byte(refused.Text)}
	default:
		return Reply{given.kind, 0, []byte(err.Error())}
	}
}

func (c *Client) answer(given call) ([]byte, error) {
	switch given.kind {
	case Start:
		return nil, c.session.start(given.name)
	case Tick:
		return c.session.tick(given.body)
	default:
		return nil, c.session.stop(given.body)
	}
}
