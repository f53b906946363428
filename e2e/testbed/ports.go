package testbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports lie below the range from which kernels take the source ports of
// outgoing connections. Otherwise a client that dials a stopped API server over
// and over could be given the server's own port and talk to itself.
const (
	firstPort = 20000
	lastPort  = 31999
)

// port is a TCP port on 127.0.0.1, reserved until release. The reservation is the
// UDP socket of the same number, so it holds between processes and ends with ours.
type port struct {
	number int
	lock   net.PacketConn
}

func (p port) String() string { return strconv.Itoa(p.number) }

func (p port) address() string { return net.JoinHostPort("127.0.0.1", p.String()) }

func (p port) release() { _ = p.lock.Close() }

// reservePorts reserves n ports that nobody listens on.
func reservePorts(n int) ([]port, error) {
	var ports []port
	for range 100 * n {
		if len(ports) == n {
			return ports, nil
		}
		if p, ok := reservePort(firstPort + rand.IntN(lastPort-firstPort+1)); ok {
			ports = append(ports, p)
		}
	}
	releasePorts(ports)
	return nil, fmt.Errorf("found no %d free ports between %d and %d on 127.0.0.1", n, firstPort, lastPort)
}

func reservePort(number int) (port, bool) {
	p := port{number: number}
	lock, err := net.ListenPacket("udp", p.address())
	if err != nil {
		return port{}, false
	}
	p.lock = lock
	listener, err := net.Listen("tcp", p.address())
	if err != nil {
		p.release()
		return port{}, false
	}
	_ = listener.Close()
	return p, true
}

func releasePorts(ports []port) {
	for _, p := range ports {
		p.release()
	}
}
