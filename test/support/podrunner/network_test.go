package podrunner

import "testing"

func TestEachRunnerHasItsOwnNetwork(t *testing.T) {
	first, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	second, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if first.n == second.n {
		t.Errorf("both have 127.%d: their pods would listen at the same addresses", first.n)
	}
	host, target := network{n: 3}.address(251)
	if host != "127.3.1.2" || target != "127.130.1.2" {
		t.Errorf("got %s and %s", host, target)
	}
}
