// Command metricsdocs writes the page docs/operate/metrics.md from what the manager registers. hack/generate.sh calls it
// with the page's path.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: metricsdocs PAGE")
		os.Exit(2)
	}
	all, err := exported()
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(pageOf(all)), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metricsdocs:", err)
		os.Exit(1)
	}
}
