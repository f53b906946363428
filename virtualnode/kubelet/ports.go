package kubelet

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// listen opens a port for a node: the one that it had last if that is free, so
// that connections are found again after a restart.
func (s *Server) listen(ctx context.Context, node string) (net.Listener, error) {
	taken := s.ports(node)
	try := func(port int) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(s.config.Listen, strconv.Itoa(port)))
	}
	if s.config.PortsFrom == 0 {
		return try(0)
	}
	if last := s.lastPort(node); last >= s.config.PortsFrom && !taken[last] {
		if listener, err := try(last); err == nil {
			return listener, nil
		}
	}
	var failed error
	for port := s.config.PortsFrom; port < s.config.PortsFrom+1000; port++ {
		if taken[port] {
			continue
		}
		listener, err := try(port)
		if err == nil {
			return listener, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("no port is free for the kubelet API of node %s (--kubelet-ports-from): %w", node, failed)
}

// ports returns the ports that other nodes have.
func (s *Server) ports(node string) map[int]bool {
	taken := map[int]bool{}
	for _, e := range s.endpoints {
		taken[e.port] = true
	}
	for _, obj := range s.config.Nodes.GetStore().List() {
		if other, ok := obj.(*corev1.Node); ok && other.Name != node && address(other) == s.config.NodeIP {
			taken[int(other.Status.DaemonEndpoints.KubeletEndpoint.Port)] = true
		}
	}
	return taken
}

func (s *Server) lastPort(node string) int {
	obj, ok, err := s.config.Nodes.GetStore().GetByKey(node)
	if have, is := obj.(*corev1.Node); err == nil && ok && is {
		return int(have.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	return 0
}

func address(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
