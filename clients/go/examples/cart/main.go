// A game that drives itself: the physics of CartPole (Barto, Sutton and Anderson, 1983) inside a client.
//
//	cd examples/game && penstock train --algo appo --env gamecore://cart_agent:CartAgent --tcp_port 8001 &
//	cd clients/go && go run ./examples/cart localhost 8001 --games 8
//
// Each game plays episode after episode until the run has ended. A game of your own does the same: Start, Tick with what it
// sees and the reward of the action before, Stop with what came of the last action.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"

	"penstock/gamecore"
)

const stepLimit = 500

// cart is a pole on a cart. A step takes 0.02 s of the game's time.
type cart struct {
	x, speed, angle, turning float64
}

func newCart(chance *rand.Rand) *cart {
	near := func() float64 { return 0.1*chance.Float64() - 0.05 }
	return &cart{near(), near(), near(), near()}
}

// push pushes left (0) or right (1). True: the pole has fallen, or the cart has left the track.
func (c *cart) push(action int) bool {
	force := -10.0
	if action == 1 {
		force = 10.0
	}
	sine, cosine := math.Sincos(c.angle)
	inner := (force + 0.05*c.turning*c.turning*sine) / 1.1
	turn := (9.8*sine - cosine*inner) / (0.5 * (4.0/3.0 - 0.1*cosine*cosine/1.1))
	accelerates := inner - 0.05*turn*cosine/1.1
	c.x += 0.02 * c.speed
	c.speed += 0.02 * accelerates
	c.angle += 0.02 * c.turning
	c.turning += 0.02 * turn
	return math.Abs(c.x) > 2.4 || math.Abs(c.angle) > 12*math.Pi/180
}

// seen is what the policy sees.
func (c *cart) seen() []float64 { return []float64{c.x, c.speed, c.angle, c.turning} }

// The bodies are JSON, which is the default. What is nil is left out.
type state struct {
	Obs        []float64 `json:"obs"`
	Reward     *float64  `json:"reward,omitempty"`
	Terminated *bool     `json:"terminated,omitempty"`
}

func (s state) body() []byte {
	// It fails for numbers that JSON does not know, and the physics makes none.
	made, _ := json.Marshal(s)
	return made
}

// game is one of the games that play side by side.
type game struct {
	client *gamecore.Client
	agent  string
	chance *rand.Rand
}

// act asks for an action.
func (g *game) act(seen state) (int, error) {
	reply, err := g.client.Tick(seen.body())
	if err != nil {
		return 0, err
	}
	var found struct{ Action int }
	return found.Action, json.Unmarshal(reply, &found)
}

// episode plays one episode. It returns how long the pole stood.
func (g *game) episode() (int, error) {
	reward := 1.0
	cart := newCart(g.chance)
	if err := g.client.Start("cart", g.agent, nil); err != nil {
		return 0, err
	}
	action, err := g.act(state{Obs: cart.seen()})
	for step := 1; err == nil; step++ {
		hasFallen := cart.push(action)
		if hasFallen || step == stepLimit {
			return step, g.client.Stop(state{cart.seen(), &reward, &hasFallen}.body())
		}
		action, err = g.act(state{Obs: cart.seen(), Reward: &reward})
	}
	return 0, err
}

// play plays until the server is gone, or has refused an episode. It returns the lengths of the episodes.
func play(host string, port uint16, number int, options gamecore.Options) []int {
	client, err := gamecore.CreateClient(host, port, nil, "", "", options)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	g := game{client, strconv.Itoa(number), rand.New(rand.NewSource(int64(number)))}
	var lengths []int
	for wasLost := false; ; {
		length, err := g.episode()
		var lost *gamecore.LostError
		switch {
		case err == nil:
			lengths = append(lengths, length)
			wasLost = false
		case errors.As(err, &lost) && !wasLost:
			// Start tries for as long as it may: the second time in a row nobody is there.
			wasLost = true
		default:
			return lengths
		}
	}
}

func main() {
	flags := flag.NewFlagSet("cart", flag.ExitOnError)
	games := flags.Int("games", 8, "how many play side by side")
	patience := flags.Int("patience", 30, "seconds to wait for the run")
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cart HOST PORT [--games N] [--patience SECONDS]")
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[3:])
	port, err := strconv.ParseUint(os.Args[2], 10, 16)
	if err != nil || *games < 1 {
		fmt.Fprintln(os.Stderr, "PORT is a port, and --games at least 1")
		os.Exit(2)
	}
	options := gamecore.Options{Patience: time.Duration(*patience) * time.Second}

	lengths := make([][]int, *games)
	var playing sync.WaitGroup
	for number := range lengths {
		playing.Add(1)
		go func(number int) {
			defer playing.Done()
			lengths[number] = play(os.Args[1], uint16(port), number, options)
		}(number)
	}
	playing.Wait()

	episodes, steps := 0, 0
	for _, ofGame := range lengths {
		episodes += len(ofGame)
		for _, length := range ofGame {
			steps += length
		}
	}
	fmt.Printf("%d episodes, %.1f steps each\n", episodes, float64(steps)/math.Max(1, float64(episodes)))
}
