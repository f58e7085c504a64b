package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports come from below the range that the kernel gives to outgoing
// connections, so that none of those can take one before its server listens.
const (
	lowestPort = 20000
	portRange  = 10000
)

// freePorts picks n different ports that nothing on the loopback interface
// listens on. They are picked at random, so that clusters which start at the
// same moment pick different ones.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := lowestPort + rand.IntN(portRange)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer listener.Close() // held until all are picked
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports from %d to %d: found only %d", n, lowestPort, lowestPort+portRange-1, len(ports))
}
