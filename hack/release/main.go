// Command release turns built programs into what is published: archives, software
// bills of materials, images, a krew manifest, release notes and checksums. It
// knows nothing of how the programs are built (hack/build.sh) nor of versions
// (hack/version.sh); hack/release.sh calls it. All that it writes is a function of
// what it is given: no clock, no directory, no user is in it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// edition is what is released: the same for everything in a distribution.
type edition struct {
	version, commit string
	at              time.Time
}

// pseudo is the form of the versions that hack/version.sh makes up.
var pseudo = regexp.MustCompile(`[.-]\d{14}-[0-9a-f]{12}(-dirty)?$|-dirty$`)

// final tells whether a person gave this version, by a tag or by VERSION.
func (e edition) final() bool { return !pseudo.MatchString(e.version) }

// fromEnvironment reads what hack/version.sh printed.
func fromEnvironment(env func(string) string) (edition, error) {
	seconds, err := strconv.ParseInt(env("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return edition{}, fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds: use what hack/version.sh prints: %w", err)
	}
	e := edition{version: env("VERSION"), commit: env("COMMIT"), at: time.Unix(seconds, 0).UTC()}
	if e.version == "" || e.commit == "" {
		return edition{}, errors.New("VERSION and COMMIT are not both set: use what hack/version.sh prints")
	}
	return e, nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	root := flags.String("root", "../..", "directory of the checkout")
	built := flags.String("built", "", "directory of the programs, as OS_ARCHITECTURE/PROGRAM")
	dist := flags.String("dist", "", "directory to write to; what lies there gets into the checksums")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *built == "" || *dist == "" || flags.NArg() != 1 {
		return errors.New("usage: release --built DIR --dist DIR notes|pack|images|check")
	}
	e, err := fromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	d := distribution{edition: e, platforms: platforms, root: *root, built: *built, dir: *dist}
	switch flags.Arg(0) {
	case "notes":
		text, err := d.notes()
		fmt.Print(text)
		return err
	case "pack":
		return d.pack()
	case "images":
		return d.images(filepath.Join(*dist, "images"))
	case "check":
		return d.check()
	}
	return fmt.Errorf("%q is not known: it is notes, pack, images or check", flags.Arg(0))
}
