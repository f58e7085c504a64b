package podrunner

import (
	"errors"
	"fmt"
	"net"
)

// network is a part of the loopback network: 127.N.0.0/16, in which processes
// listen, and its other half, in which nobody does.
type network struct {
	n    int
	lock net.Listener
}

// networks is how many there are, and lockPort where the holder of one listens so
// that others see that it is held. It ends with the program, however that ends.
const (
	networks = 127
	lockPort = 42424
)

// reserve finds a network that no other program has.
func reserve() (network, error) {
	var errs []error
	for n := range networks {
		if n == 0 {
			continue // everybody's
		}
		lock, err := net.Listen("tcp", fmt.Sprintf("127.%d.0.0:%d", n, lockPort))
		if err == nil {
			return network{n, lock}, nil
		}
		errs = append(errs, err)
	}
	return network{}, fmt.Errorf("no part of the loopback network is free: %w", errors.Join(errs...))
}

func (n network) release() { _ = n.lock.Close() }

// address is the i-th, and its counterpart where nobody listens.
func (n network) address(i int) (host, target string) {
	own := fmt.Sprintf("%d.%d", i/250, i%250+1)
	return fmt.Sprintf("127.%d.%s", n.n, own), fmt.Sprintf("127.%d.%s", n.n+networks, own)
}
