package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/phasegate/phasegate/phases"
)

// fileRefused plays with real files: what a refusal is, only the store knows. The
// directory is named as the chart mounts it, so that the labels are those of life.
func fileRefused(w *world) (err error) {
	root, err := os.MkdirTemp("", "phasegate-play-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	back, err := os.Getwd()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Chdir(back)) }()
	if err := errors.Join(os.Chdir(root), os.Mkdir("machines", 0o700)); err != nil {
		return err
	}
	if w.store, err = load(phases.Files, "machines"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { err = errors.Join(err, w.store.Start(ctx)) })
	defer watching.Wait()
	defer stop()

	w.start("standby")
	w.lead("leader")
	before := w.pass(2 * time.Minute)
	edited := w.edit(func() error {
		return os.WriteFile(filepath.Join("machines", "mine.yaml"), []byte("kind: Machin\n"), 0o600)
	})
	wrong := w.pass(5 * time.Minute)
	corrected := w.edit(func() error { return os.Remove(filepath.Join("machines", "mine.yaml")) })
	return errors.Join(before, edited, wrong, corrected, w.pass(5*time.Minute))
}

// edit changes a file and returns once the store has judged it.
func (w *world) edit(change func() error) error {
	changed := w.store.Changed()
	if err := change(); err != nil {
		return err
	}
	select {
	case <-changed:
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("the store did not notice a change of a machine file within a minute")
	}
}
