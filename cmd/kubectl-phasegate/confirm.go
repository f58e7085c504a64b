package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirm asks a person. Where there is none, --yes must have said it.
func confirm(s streams, yes bool, deed string) error {
	if yes {
		return nil
	}
	in, ok := s.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New(deed + ": there is no terminal to ask on: give --yes")
	}
	fmt.Fprintf(s.err, "%s? [y/N] ", deed)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w: give --yes", err)
	}
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
		return nil
	}
	fmt.Fprintln(s.err, "nothing was done")
	return errFindings
}
