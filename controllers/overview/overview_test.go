package overview_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/overview"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// now is the moment at which the objects of testdata are looked at.
var now = time.Date(2026, 11, 21, 10, 5, 0, 0, time.UTC)

func shipped(t *testing.T) *fsm.Machine {
	t.Helper()
	return fsmtest.Machine(t, "../../phases/datastore-migration.yaml", datastoremigration.Bindings())
}

// Each object of testdata says in its first line what is to be seen in the texts made of it.
func TestTexts(t *testing.T) {
	m := shipped(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".yaml")
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dm := &migrationv1.DatastoreMigration{}
			if err := yaml.UnmarshalStrict(data, dm); err != nil {
				t.Fatal(err)
			}
			o := overview.Of(m, dm, now)
			var text strings.Builder
			for _, v := range []struct {
				title string
				view  overview.View
			}{{"status", overview.View{}}, {"status --tree -o wide", overview.View{Tree: true, Wide: true}}} {
				text.WriteString("$ kubectl phasegate " + v.title + "\n")
				if err := o.Text(&text, v.view); err != nil {
					t.Fatal(err)
				}
				text.WriteString("\n")
			}
			text.WriteString("in a line: " + o.Line() + "\n")
			fsmtest.Golden(t, name+".txt", text.String())
			asJSON, err := json.MarshalIndent(o, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			fsmtest.Golden(t, name+".json", string(asJSON)+"\n")
		})
	}
}
