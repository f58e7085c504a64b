package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestLevels(t *testing.T) {
	cases := map[string]struct {
		why  string
		want []string
	}{
		"error": {why: "somebody pays for each line", want: []string{"an error"}},
		"info":  {why: "the usual", want: []string{"an error", "news"}},
		"0":     {why: "logr's name of it", want: []string{"an error", "news"}},
		"debug": {why: "what is of use to find a fault", want: []string{"an error", "news", "details"}},
		"2":     {why: "client-go says more at higher levels", want: []string{"an error", "news", "details", "more details"}},
	}
	for level, c := range cases {
		t.Run(level, func(t *testing.T) {
			var out bytes.Buffer
			log, err := (&logOptions{format: "json", level: level}).logger(&out)
			if err != nil {
				t.Fatal(err)
			}
			log.Error(errors.New("e"), "an error")
			log.Info("news")
			log.V(1).Info("details")
			log.V(2).Info("more details")
			log.V(3).Info("never asked for")
			var said []string
			for line := range strings.Lines(out.String()) {
				var fields struct{ Msg, TS string }
				if err := json.Unmarshal([]byte(line), &fields); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				if _, err := time.Parse("2006-01-02T15:04:05.000Z0700", fields.TS); err != nil {
					t.Errorf("a time that people cannot read: %v", err)
				}
				said = append(said, fields.Msg)
			}
			if diff := cmp.Diff(c.want, said); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// Objects go into a log by name, whoever puts them there: client-go does.
func TestObjectsAreNamedOnly(t *testing.T) {
	secret := &corev1.Secret{Data: map[string][]byte{"password": []byte("hunter2")}, StringData: map[string]string{"password": "hunter2"}}
	secret.Name, secret.Namespace, secret.Annotations = "s", "n", map[string]string{"token": "hunter2"}
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log, err := (&logOptions{format: format, level: "10"}).logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("an object", "object", secret)
		if said := out.String(); !strings.Contains(said, `"name":"s"`) && !strings.Contains(said, `"name": "s"`) || strings.Contains(said, "hunter2") || strings.Contains(said, "aHVudGVyMg") {
			t.Errorf("%s: want the name and no more: %s", format, said)
		}
	}
}
