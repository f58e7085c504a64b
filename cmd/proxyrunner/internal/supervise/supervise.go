// Package supervise keeps the MCP server behind a proxy there: it makes it, waits
// for it, connects to it, and looks again when it is gone. A failure is told and
// tried again; it never ends the proxy.
//
// What making and connecting are is not its business.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

// Connection is what reaches the MCP server.
type Connection interface {
	front.Server
	// Run keeps it up until ctx is done. It is called once.
	Run(ctx context.Context) error
}

// Pace is how fast things are looked at; the zero value is Usual.
type Pace struct {
	// First and Longest are how long a round lasts that comes to nothing: each is
	// twice as long as the one before.
	First, Longest time.Duration
	// Look is how often a connection is asked whether it is up, and Lost after how
	// many such answers in a row that it is not the MCP server is made again.
	Look time.Duration
	Lost int
}

// Usual is for production.
var Usual = Pace{First: 2 * time.Second, Longest: time.Minute, Look: 2 * time.Second, Lost: 5}

// Supervisor is set up by its maker and runs once.
type Supervisor struct {
	// Deploy makes the MCP server, or finds that a newer proxy has.
	Deploy func(ctx context.Context) (backend.Result, error)
	// Await returns when it is ready; at the end of ctx, with what is missing.
	Await func(ctx context.Context) error
	// Connect makes a connection to a host, which is not up yet.
	Connect func(host string) Connection
	// Exclusive says that only one proxy may be connected: the one that has made it.
	Exclusive bool
	// Front is given the connection, or told what is awaited.
	Front *front.Front
	Pace  Pace
	Log   *slog.Logger

	connection Connection // nil while there is none
	hangUp     context.CancelFunc
}

// Run works until ctx is done. The connection lasts until serving is done, which is
// later, so that calls under way are answered.
func (s *Supervisor) Run(ctx, serving context.Context) {
	patience := s.Pace.First
	for ctx.Err() == nil {
		round, cancel := context.WithTimeout(ctx, wait.Jitter(patience, 0.2))
		err := s.bringUp(round, serving)
		if err == nil {
			patience = s.Pace.First
			s.watch(ctx)
		} else if ctx.Err() == nil {
			s.Log.Warn("the MCP server is not there yet", "reason", err.Error(), "next_look_within", patience.String())
			if s.connection == nil {
				s.Front.Wait(err.Error())
			}
			<-round.Done()
			patience = min(2*patience, s.Pace.Longest)
		}
		cancel()
	}
}

// bringUp takes one look, and does what is missing.
func (s *Supervisor) bringUp(ctx, serving context.Context) error {
	result, err := s.Deploy(ctx)
	if err != nil {
		return fmt.Errorf("apply it: %w", err)
	}
	if result.Why != "" {
		s.Log.Warn("generation gate", "skipped", result.Skipped, "reason", result.Why)
	}
	if result.Skipped && s.Exclusive {
		s.disconnect()
		return errors.New("a newer proxy is taking over: " + result.Why)
	}
	if err := s.Await(ctx); err != nil {
		return err
	}
	if s.connection == nil {
		s.connect(serving, result.Host)
	}
	return nil
}

func (s *Supervisor) connect(serving context.Context, host string) {
	serving, s.hangUp = context.WithCancel(serving)
	connection := s.Connect(host)
	go func() {
		if err := connection.Run(serving); err != nil && serving.Err() == nil {
			s.Log.Error("the connection to the MCP server has ended", "error", err)
		}
	}()
	s.connection = connection
	s.Front.Open(connection)
	s.Log.Info("serving clients")
}

func (s *Supervisor) disconnect() {
	if s.connection != nil {
		s.hangUp()
		s.connection = nil
	}
}

// watch returns when the MCP server has been away for a while.
func (s *Supervisor) watch(ctx context.Context) {
	ticker := time.NewTicker(s.Pace.Look)
	defer ticker.Stop()
	for away := 0; away < s.Pace.Lost; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		ok, message := s.connection.Health()
		if away++; ok {
			away = 0
		}
		if away == s.Pace.Lost {
			s.Log.Warn("the MCP server is away", "reason", message)
		}
	}
}
