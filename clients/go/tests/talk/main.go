// Carries out the calls on its standard input with a client, and prints what came of each, one line a call.
//
//	talk HOST PORT [--async] [--delta] [--key KEY] [--token TOKEN] [--timeout MS] [--patience MS]
//
// A line is `start GAME AGENT`, `tick BODY`, `stop`, `stop BODY` or `wait MS`. A status and a body are printed; status 0 stands
// for a lost connection. With --async all calls are made at once, and a last line says how many replies came out of order.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"penstock/gamecore"
)

type settings struct {
	host, key, token string
	port             uint16
	isAsync          bool
	options          gamecore.Options
}

func read(arguments []string) settings {
	if len(arguments) < 3 {
		fail(errors.New("usage: talk HOST PORT [flags]"))
	}
	port, err := strconv.ParseUint(arguments[2], 10, 16)
	fail(err)
	made := settings{host: arguments[1], port: uint16(port)}
	flags := flag.NewFlagSet("talk", flag.ExitOnError)
	flags.BoolVar(&made.isAsync, "async", false, "make all calls at once")
	flags.BoolVar(&made.options.Delta, "delta", false, "send deltas")
	flags.StringVar(&made.key, "key", "", "of the greeting")
	flags.StringVar(&made.token, "token", "", "of the greeting")
	timeout := flags.Int("timeout", 60000, "milliseconds")
	patience := flags.Int("patience", 60000, "milliseconds")
	fail(flags.Parse(arguments[3:]))
	made.options.Timeout = time.Duration(*timeout) * time.Millisecond
	// 0 would be the default.
	made.options.Patience = time.Duration(*patience)*time.Millisecond - time.Nanosecond
	return made
}

func (s settings) client(callback gamecore.Callback) *gamecore.Client {
	made, err := gamecore.CreateClient(s.host, s.port, callback, s.key, s.token, s.options)
	fail(err)
	return made
}

func carryOut(client *gamecore.Client, line string) ([]byte, error) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "start":
		game, agent, _ := strings.Cut(rest, " ")
		return nil, client.Start(game, agent, nil)
	case "tick":
		return client.Tick([]byte(rest))
	case "wait":
		milliseconds, err := strconv.Atoi(rest)
		time.Sleep(time.Duration(milliseconds) * time.Millisecond)
		return nil, err
	default:
		return nil, client.Stop([]byte(rest))
	}
}

func talkInTurn(client *gamecore.Client, lines []string) {
	for _, line := range lines {
		body, err := carryOut(client, line)
		var refused *gamecore.RefusedError
		switch {
		case err == nil:
			fmt.Printf("200 %s\n", body)
		case errors.As(err, &refused):
			fmt.Printf("%d %s\n", refused.Status, refused.Text)
		default:
			fmt.Printf("0 %s\n", err)
		}
	}
}

func talkAtOnce(given settings, lines []string) {
	replies, outOfOrder := 0, 0
	all := make(chan struct{})
	client := given.client(func(reply gamecore.Reply) {
		wanted, _, _ := strings.Cut(lines[replies], " ")
		if wanted != reply.Kind.String() {
			outOfOrder++
		}
		fmt.Printf("%d %s\n", reply.Status, reply.Body)
		if replies++; replies == len(lines) {
			close(all)
		}
	})
	for _, line := range lines {
		_, err := carryOut(client, line)
		fail(err)
	}
	<-all
	client.Close()
	fmt.Printf("out of order: %d\n", outOfOrder)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	given := read(os.Args)
	var lines []string
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		lines = append(lines, input.Text())
	}
	fail(input.Err())
	if given.isAsync {
		talkAtOnce(given, lines)
		return
	}
	client := given.client(nil)
	defer client.Close()
	talkInTurn(client, lines)
}
