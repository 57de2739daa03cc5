package gamecore

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// server answers the requests of connections one after the other: with the status that answer gives, and the request's body.
func server(t *testing.T, answer func(kind Kind) int) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			serve(socket, answer)
		}
	}()
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

func serve(socket net.Conn, answer func(kind Kind) int) {
	defer socket.Close()
	head := make([]byte, 32)
	if _, err := io.ReadFull(socket, head[:len(greeting("", ""))]); err != nil {
		return
	}
	welcome := append(greeting("", "")[:10], 0, 200, 0, 0, 0, 0)
	for reply := welcome; ; {
		if _, err := socket.Write(reply); err != nil {
			return
		}
		if _, err := io.ReadFull(socket, head); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint64(head[16:])+uint64(binary.BigEndian.Uint32(head[24:])))
		if _, err := io.ReadFull(socket, rest); err != nil {
			return
		}
		body := rest[binary.BigEndian.Uint32(head[24:]):]
		status := answer(Kind(head[28]))
		if status == 0 {
			return
		}
		reply = append([]byte(nil), head[:8]...)
		reply = binary.BigEndian.AppendUint64(reply, uint64(len(body)))
		reply = binary.BigEndian.AppendUint16(reply, uint16(status))
		reply = append(append(reply, make([]byte, 6)...), body...)
	}
}

func always(status int) func(Kind) int { return func(Kind) int { return status } }

func client(t *testing.T, port uint16, callback Callback, options Options) *Client {
	t.Helper()
	made, err := CreateClient("127.0.0.1", port, callback, "", "", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

func TestAConnectionThatBreaksIsMadeAgainByTheNextStart(t *testing.T) {
	ticks := 0
	breaks := func(kind Kind) int {
		if kind == Tick {
			ticks++
			if ticks == 1 {
				return 0
			}
		}
		return 200
	}
	one := client(t, server(t, breaks), nil, Options{})
	if err := one.Start("game", "0", nil); err != nil {
		t.Fatal(err)
	}
	var lost *LostError
	if _, err := one.Tick([]byte("a")); !errors.As(err, &lost) {
		t.Errorf("the connection broke: %v", err)
	}
	if err := one.Start("game", "0", nil); err != nil {
		t.Fatal(err)
	}
	if reply, err := one.Tick([]byte("b")); err != nil || string(reply) != "b" {
		t.Errorf("%q, %v", reply, err)
	}
}

func TestACallbackMayCallItsClient(t *testing.T) {
	const ticks = 5
	var one *Client
	said, all := "", make(chan struct{})
	told := func(reply Reply) {
		said += reply.Kind.String() + string(reply.Body) + " "
		switch {
		case reply.Kind == Stop:
			close(all)
		case len(reply.Body) == ticks:
			_ = one.Stop(nil)
		default:
			_, _ = one.Tick([]byte(strings.Repeat("x", len(reply.Body)+1)))
		}
	}
	one = client(t, server(t, always(200)), told, Options{})
	if err := one.Start("game", "0", nil); err != nil {
		t.Fatal(err)
	}
	<-all
	if wanted := "start tickx tickxx tickxxx tickxxxx tickxxxxx stop "; said != wanted {
		t.Errorf("%q, not %q", said, wanted)
	}
}

func TestCloseEndsAStartThatGoesOnTrying(t *testing.T) {
	tried := make(chan struct{}, 100)
	isFull := func(Kind) int {
		tried <- struct{}{}
		return statusTooMany
	}
	replies := make(chan Reply, 1)
	one := client(t, server(t, isFull), func(reply Reply) { replies <- reply }, Options{Patience: time.Hour})
	_ = one.Start("game", "0", nil)
	<-tried
	one.Close()
	if reply := <-replies; reply.Status != statusTooMany || reply.IsAnswer() {
		t.Error(reply)
	}
	if _, err := one.Tick(nil); err == nil || err.Error() != "the client is closed" {
		t.Error(err)
	}
}

func TestAnotherAgentStopsTheEpisodeBefore(t *testing.T) {
	kinds := make(chan Kind, 5)
	one := client(t, server(t, func(kind Kind) int { kinds <- kind; return 200 }), nil, Options{})
	for _, agent := range []string{"0", "1", "1"} {
		if err := one.Start("game", agent, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, wanted := range []Kind{Start, Stop, Start, Stop, Start} {
		if kind := <-kinds; kind != wanted {
			t.Errorf("%s, not %s", kind, wanted)
		}
	}
}

func TestALongKeyOrTokenIsAnError(t *testing.T) {
	long := strings.Repeat("x", mostKey+1)
	for _, pair := range [][2]string{{long, ""}, {"", long}} {
		if _, err := CreateClient("localhost", 1, nil, pair[0], pair[1], Options{}); err == nil {
			t.Error("it was taken")
		}
	}
}
