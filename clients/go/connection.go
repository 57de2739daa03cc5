package gamecore

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

const serverClosed = "the server has closed the connection"

// connection is a TCP connection whose calls end at a deadline. It knows no frames. All its errors are LostErrors.
type connection struct {
	socket net.Conn
	reader *bufio.Reader
}

// dial connects to the first address of the host that answers. The deadline holds until expireAt sets another one.
func dial(host string, port uint16, deadline time.Time) (*connection, error) {
	address := net.JoinHostPort(host, strconv.Itoa(int(port)))
	socket, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", address)
	if err != nil {
		return nil, &LostError{"no server at " + address + ": " + cause(err).Error()}
	}
	made := &connection{socket, bufio.NewReader(socket)}
	made.expireAt(deadline)
	return made, nil
}

// expireAt says when a call ends that is still waiting.
func (c *connection) expireAt(deadline time.Time) {
	// It fails only for a socket that is closed, and then so does the next call.
	_ = c.socket.SetDeadline(deadline)
}

func (c *connection) send(bytes []byte) error {
	_, err := c.socket.Write(bytes)
	return lost(err, serverClosed)
}

// receive returns so many bytes, or a LostError with the given words if the server has closed the connection.
func (c *connection) receive(size uint64, closed string) ([]byte, error) {
	bytes := make([]byte, size)
	_, err := io.ReadFull(c.reader, bytes)
	return bytes, lost(err, closed)
}

func (c *connection) close() {
	_ = c.socket.Close()
}

// lost is the error of a socket as a LostError.
func lost(err error, closed string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &LostError{closed}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &LostError{"no reply in time"}
	default:
		return &LostError{cause(err).Error()}
	}
}

// cause is the innermost error: without the addresses that those around it repeat.
func cause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
