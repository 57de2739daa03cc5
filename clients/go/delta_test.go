package gamecore

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"testing"
)

// decode carries a delta out, as docs/gamecore-tcp.md says it.
func decode(t *testing.T, base, delta []byte) []byte {
	t.Helper()
	number := func() int {
		found, size := binary.Uvarint(delta)
		if size <= 0 {
			t.Fatal("the delta ends too early")
		}
		delta = delta[size:]
		return int(found)
	}
	size, place := number(), 0
	var made []byte
	for len(made) < size {
		copied := number()
		made = append(made, base[place:place+copied]...)
		place += copied
		if len(made) == size {
			break
		}
		put := number()
		moves := put%2 == 1
		put /= 2
		place = least(place+put, len(base))
		if moves {
			place = number()
		}
		made = append(made, delta[:put]...)
		delta = delta[put:]
	}
	if len(delta) > 0 {
		t.Fatalf("%d bytes are left of the delta", len(delta))
	}
	return made
}

func check(t *testing.T, base, body []byte) {
	t.Helper()
	delta, ok := encode(base, body)
	if !ok {
		return
	}
	if len(delta) >= len(body) {
		t.Errorf("the delta takes %d bytes, the body %d", len(delta), len(body))
	}
	if made := decode(t, base, delta); !bytes.Equal(made, body) {
		t.Errorf("%x came back as %x", body, made)
	}
}

// changed returns the base after some replacements.
func changed(chance *rand.Rand, base []byte) []byte {
	body := append([]byte(nil), base...)
	for changes := chance.Intn(6); changes > 0; changes-- {
		at := chance.Intn(len(body) + 1)
		until := least(at+chance.Intn(30), len(body))
		put := make([]byte, chance.Intn(30))
		chance.Read(put)
		body = append(append(append([]byte(nil), body[:at]...), put...), body[until:]...)
	}
	return body
}

func TestWhateverChangesComesBack(t *testing.T) {
	chance := rand.New(rand.NewSource(0))
	for try := 0; try < 5000; try++ {
		base := make([]byte, chance.Intn(300))
		chance.Read(base)
		check(t, base, changed(chance, base))
	}
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte(nil), []byte(nil))
	f.Add([]byte("1.5, 2.5, 3.5"), []byte("1.5, 2.625, 3.5"))
	f.Add(bytes.Repeat([]byte("x"), 101), bytes.Repeat([]byte("x"), 100))
	f.Fuzz(check)
}

func TestALittleThatChangesTakesFewBytes(t *testing.T) {
	body := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, 500)
	base := append([]byte(nil), body...)
	base[1000], base[3000] = 0, 0
	if delta, ok := encode(base, body); !ok || len(delta) > 20 {
		t.Errorf("%d bytes", len(delta))
	}
}

func TestWhatChangedAltogetherHasNoDelta(t *testing.T) {
	base, body := make([]byte, 5000), make([]byte, 5000)
	rand.New(rand.NewSource(1)).Read(body)
	for _, pair := range [][2][]byte{{base, body}, {nil, body}, {base, nil}} {
		if delta, ok := encode(pair[0], pair[1]); ok {
			t.Errorf("a delta of %d bytes for %d", len(delta), len(pair[1]))
		}
	}
}
