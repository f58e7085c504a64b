package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/phasegate/phasegate/test/bench/report"
)

// The files of a directory of results. Figures are added to those that are there.
const (
	figuresFile  = "figures.json"
	documentFile = "RESULTS.md"
	chartFile    = "locked.json"
)

// results keeps what was measured, after each run: a long one may end early.
type results struct {
	report.Figures
	dir string
}

// openResults reads what is there of the same machine; figures of another one are
// dropped, because nothing about them compares.
func openResults(dir, command string) (*results, error) {
	r := &results{dir: dir}
	if dir != "" {
		text, err := os.ReadFile(filepath.Join(dir, figuresFile))
		if err == nil {
			err = json.Unmarshal(text, &r.Figures)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the results so far: %w", err)
		}
	}
	if r.Machine != machine() {
		if len(r.Runs) > 0 {
			fmt.Printf("the figures so far are of another machine, and are dropped: %s\n", r.Machine)
		}
		r.Figures = report.Figures{Machine: machine()}
	}
	if !slices.Contains(r.Commands, command) {
		r.Commands = append(r.Commands, command)
	}
	return r, nil
}

// add keeps the runs, instead of what there was of the same size and repeat.
func (r *results) add(objects, repeat int, runs []report.Run) error {
	commit, err := managerCommit()
	if err != nil {
		return err
	}
	for _, run := range runs {
		run.Objects, run.Repeat, run.Commit = objects, repeat, commit
		fmt.Printf("%s, %d objects: %v\n", run.Contender, run.Objects, run.Figures)
		r.Runs = slices.DeleteFunc(r.Runs, func(old report.Run) bool {
			return old.Contender == run.Contender && old.Objects == objects && old.Repeat == repeat
		})
		r.Runs = append(r.Runs, run)
	}
	return r.write()
}

func (r *results) write() error {
	if r.dir == "" {
		return nil
	}
	r.Date = time.Now().UTC().Format(time.DateOnly)
	figures, err := json.MarshalIndent(r.Figures, "", "\t")
	if err != nil {
		return err
	}
	chart, err := json.Marshal(report.LockedChart(&r.Figures))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	for name, text := range map[string][]byte{
		figuresFile: append(figures, '\n'), chartFile: chart, documentFile: []byte(report.Markdown(&r.Figures)),
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), text, 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	return nil
}
