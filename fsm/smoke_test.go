package fsm

import (
	"os"
	"testing"
)

func TestShippedMachineLoads(t *testing.T) {
	data, err := os.ReadFile("../phases/datastore-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, diags := Load("datastore-migration.yaml", data); len(diags) > 0 {
		t.Fatal(diags.Err())
	}
}
