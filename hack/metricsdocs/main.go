// Command metricsdocs writes what others need to know of the manager's metrics:
// the page docs/operate/metrics.md, from what is registered; and for the tests of
// the alerts, which do not link the manager, the series that it exports in plays
// such as a long lock or a restart. hack/generate.sh calls it in the root of the
// repository, with the page, the file of the rules and the directory of the plays.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: metricsdocs PAGE RULES DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdocs:", err)
		os.Exit(1)
	}
}

func write(page, rules, dir string) error {
	all, err := exported()
	if err != nil {
		return err
	}
	asked, err := os.ReadFile(rules)
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(page, []byte(pageOf(all)), 0o644)}
	for _, p := range plays {
		text, err := perform(p, string(asked))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, p.name+".yaml"), text, 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("play %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}
