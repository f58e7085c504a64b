package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	probeEvery = 20 * time.Millisecond
	// probeLimit is when a read counts as unanswered.
	probeLimit = time.Second
	probePath  = "/apis/projectcalico.org/v3/clusterinformations"
)

// availability is what a client of projectcalico.org/v3 lived through. It is
// made of the ends of reads, in order.
type availability struct {
	reads, failed int
	// gap is the longest time between two answers that followed each other, the
	// reads themselves and the pauses between them included. It never flatters.
	gap time.Duration
	// notReady is the time in which v3 answered last that the datastore is not
	// ready, or did not have the object that says so: what stops pod networking.
	notReady time.Duration
	// failure is what the last read without an answer said.
	failure string

	lastAnswer    time.Time
	notReadySince time.Time
}

// begin starts the clock: a v3 that never answers has a gap, too.
func (a *availability) begin(at time.Time) { a.lastAnswer = at }

func (a *availability) answered(at time.Time, ready bool) {
	a.reads++
	a.gap = max(a.gap, at.Sub(a.lastAnswer))
	a.lastAnswer = at
	switch {
	case !ready && a.notReadySince.IsZero():
		a.notReadySince = at
	case ready && !a.notReadySince.IsZero():
		a.notReady += at.Sub(a.notReadySince)
		a.notReadySince = time.Time{}
	}
}

func (a *availability) unanswered(err error) {
	a.reads++
	a.failed++
	a.failure = err.Error()
}

// end counts what is still open.
func (a *availability) end(at time.Time) {
	a.gap = max(a.gap, at.Sub(a.lastAnswer))
	if !a.notReadySince.IsZero() {
		a.notReady += at.Sub(a.notReadySince)
	}
}

// prober reads v3 until it is stopped.
type prober struct {
	cancel context.CancelFunc
	done   chan availability
	result *availability
}

// startProber reads once before it returns, so that a v3 that is down from the
// beginning is not mistaken for one that went down.
func startProber(ctx context.Context, cfg *rest.Config) (*prober, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = probeLimit
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for the prober: %w", err)
	}
	url := cfg.Host + probePath
	ctx, cancel := context.WithCancel(ctx)
	if _, err := readV3(ctx, client, url); err != nil {
		cancel()
		return nil, fmt.Errorf("v3 does not answer before the migration: %w", err)
	}
	p := &prober{cancel: cancel, done: make(chan availability, 1)}
	go func() { p.done <- probe(ctx, client, url) }()
	return p, nil
}

func probe(ctx context.Context, client *http.Client, url string) availability {
	var a availability
	a.begin(time.Now())
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			a.end(time.Now())
			return a
		case <-ticker.C:
		}
		ready, err := readV3(ctx, client, url)
		switch {
		case ctx.Err() != nil: // cut off by stop
		case err != nil:
			a.unanswered(err)
		default:
			a.answered(time.Now(), ready)
		}
	}
}

// stop ends the reading and tells what it saw. It may be called twice.
func (p *prober) stop() availability {
	if p.result == nil {
		p.cancel()
		a := <-p.done
		p.result = &a
	}
	return *p.result
}

// readV3 is one read as a client makes it: an error is no answer.
func readV3(ctx context.Context, client *http.Client, url string) (ready bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s", resp.Status, cut(string(body), lineWidth))
	}
	return datastoreReady(body)
}

func datastoreReady(list []byte) (bool, error) {
	var infos struct {
		Items []struct {
			Spec struct {
				DatastoreReady bool `json:"datastoreReady"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := json.Unmarshal(list, &infos); err != nil {
		return false, fmt.Errorf("v3 answered something else: %w", err)
	}
	return len(infos.Items) > 0 && infos.Items[0].Spec.DatastoreReady, nil
}
