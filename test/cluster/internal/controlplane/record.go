package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// record is what a cluster's home says about it, in cluster.json. It is
// written before the first server starts, so that a home in which anything
// ever ran can be told from a directory that is somebody else's.
type record struct {
	// APIServer is the URL of the API server.
	APIServer string `json:"apiServer,omitempty"`
	// Servers are the names of the processes, in the order of their start.
	Servers []string `json:"servers,omitempty"`
	// Existing is set if the cluster was there before: the file that its
	// kubeconfig is in. Such a cluster is used, but neither started nor ended.
	Existing string `json:"existing,omitempty"`
}

// condition is what a home is found to be.
type condition string

const (
	absent  condition = "absent"  // nothing is there
	foreign condition = "foreign" // files are there, but not ours
	dead    condition = "dead"    // a cluster of which something is not running
	live    condition = "live"    // a cluster of which everything is running
)

// examine finds out what a home is. The record is nil unless there is one.
func examine(l layout) (condition, *record, error) {
	text, err := os.ReadFile(l.record())
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(string(l.Home))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("look into %s: %w", l.Home, err)
		}
		if len(entries) > 0 {
			return foreign, nil, nil
		}
		return absent, nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("look into %s: %w", l.Home, err)
	}
	found := &record{}
	if err := json.Unmarshal(text, found); err != nil {
		return "", nil, fmt.Errorf("read %s: %w; if it is a cluster's, run cluster down with the file made {}", l.record(), err)
	}
	return found.condition(l.Running), found, nil
}

// condition decides whether a recorded cluster lives; running returns the
// process id of a server, or 0.
func (r *record) condition(running func(name string) int) condition {
	if len(r.Servers) == 0 && r.Existing == "" {
		return dead
	}
	for _, name := range r.Servers {
		if running(name) == 0 {
			return dead
		}
	}
	return live
}

// write stores the record.
func (r *record) write(l layout) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record the cluster: %w", err)
	}
	if err := os.WriteFile(l.record(), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("record the cluster: %w", err)
	}
	return nil
}
