package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The programs that are released; what they are for stands on their images.
var programs = map[string]string{
	"manager":     "Phasegate's controllers: state machines that migrate Calico's datastore and run MCP servers",
	plugin:        "Checks, explains and steers Phasegate's state machines",
	"proxyrunner": "The proxy in front of an MCP server on Kubernetes, as Phasegate's manager starts it",
}

// plugin is the program that users have on their own machines.
const plugin = "kubectl-phasegate"

// platform is an operating system and an architecture, by the names of the go command.
type platform struct{ os, arch string }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func (p platform) String() string { return p.os + "_" + p.arch }

// archive is the name of the archive of a program.
func (p platform) archive(program string, e edition) string {
	return p.stem(program, e) + ".tar.gz"
}

// bill is the name of the bill of materials of a program.
func (p platform) bill(program string, e edition) string {
	return p.stem(program, e) + ".cdx.json"
}

func (p platform) stem(program string, e edition) string {
	return program + "_" + e.version + "_" + p.String()
}

// distribution is a directory of what is published of an edition.
type distribution struct {
	edition
	platforms        []platform
	root, built, dir string
}

// each calls do for each program on each platform, with the path of the program.
func (d distribution) each(do func(p platform, program, path string) error) error {
	for _, p := range d.platforms {
		for program := range programs {
			if err := do(p, program, filepath.Join(d.built, p.String(), program)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pack writes everything but images; the checksums are of all files of the
// directory, so that what others have put there, the chart, is among them.
func (d distribution) pack() error {
	license, err := os.ReadFile(filepath.Join(d.root, "LICENSE"))
	if err != nil {
		return err
	}
	sums := map[string]string{}
	err = d.each(func(p platform, program, path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		tar, err := packFiles([]entry{{program, 0o755, data}, {"LICENSE", 0o644, license}}, d.at)
		if err != nil {
			return err
		}
		packed, err := compressed(tar)
		if err != nil {
			return err
		}
		sums[p.archive(program, d.edition)] = sum(packed)
		materials, err := bill(path, d.edition)
		if err != nil {
			return err
		}
		if err := d.write(p.bill(program, d.edition), materials); err != nil {
			return err
		}
		return d.write(p.archive(program, d.edition), packed)
	})
	if err != nil {
		return err
	}
	if err := d.describe(sums); err != nil {
		return err
	}
	checksums, err := d.checksums()
	if err != nil {
		return err
	}
	return d.write(checksumsFile, []byte(checksums))
}

// describe writes what tells of the archives.
func (d distribution) describe(sums map[string]string) error {
	manifest, err := krew(d.edition, d.platforms, sums)
	if err != nil {
		return err
	}
	if err := d.write("phasegate.yaml", manifest); err != nil {
		return err
	}
	text, err := d.notes()
	if err != nil {
		return err
	}
	if err := d.write("release-notes.md", []byte(text)); err != nil {
		return err
	}
	crds, err := d.definitions()
	if err != nil {
		return err
	}
	return d.write("crds.yaml", crds)
}

func (d distribution) notes() (string, error) {
	changelog, err := os.ReadFile(filepath.Join(d.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	return notes(string(changelog), d.edition)
}

// definitions are the CRDs of the chart in one file, for `kubectl apply -f`.
func (d distribution) definitions() ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(d.root, "charts/phasegate/files/crds/*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.TrimPrefix(string(data), "---\n"))
	}
	return []byte(strings.Join(all, "---\n")), nil
}

const checksumsFile = "checksums.txt"

// checksums lists all files of the directory in the form of sha256sum.
func (d distribution) checksums() (string, error) {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, f := range files {
		if f.IsDir() || f.Name() == checksumsFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(d.dir, f.Name()))
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%s  %s\n", sum(data), f.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return strings.Join(lines, ""), nil
}

func (d distribution) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(d.dir, name), data, 0o644)
}
