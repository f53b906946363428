package services

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
)

// documented returns the lines of the Corefile that docs/services.md says.
func documented(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(fabric.Root(), "docs", "services.md"))
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "rewrite ") {
			lines = append(lines, line)
		}
	}
	require.Len(t, lines, 3)
	return strings.Join(lines, "")
}

// dns starts CoreDNS, as nodes of kind have it, with these lines, for a cluster, and returns what asks it.
func (s *side) dns(t *testing.T) *net.Resolver {
	t.Helper()
	directory, err := built.CoreDNS.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	port := freePort(t)
	file, err := s.WriteFile("Corefile", fmt.Appendf(nil, `.:%s {
bind 127.0.0.1
errors
%skubernetes cluster.local in-addr.arpa ip6.arpa {
  kubeconfig %s
}
}
`, port, documented(t), s.Kubeconfig()))
	require.NoError(t, err)
	program, err := s.StartProgram("coredns", filepath.Join(directory, "coredns"), "-conf", file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Stop(time.Second) })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	}}
}

// freePort returns one that is free for UDP and for TCP. What the test bed reserves is taken for UDP.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", listener.Addr().String())
		require.NoError(t, listener.Close())
		if err != nil {
			continue
		}
		require.NoError(t, packets.Close())
		_, port, err := net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		return port
	}
	require.Fail(t, "no port is free for UDP and for TCP")
	return ""
}

func TestCoreDNSFindsTheNamesOfImports(t *testing.T) {
	w := newWorld(t)
	w.start()
	one, there := w.sides["home"], w.sides["west"]
	there.service(t, "web", nil, at("10.244.0.7"))
	there.exports(t, "web")
	named := func(endpoint discoveryv1.Endpoint, name string) discoveryv1.Endpoint {
		endpoint.Hostname = &name
		return endpoint
	}
	headless := func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone }
	for _, at1 := range []*side{one, there} {
		at1.service(t, "db", headless, named(at("10.244.0.9"), "db-0"))
		at1.exports(t, "db")
	}
	// A Service that is not exported has no name in the set.
	one.service(t, "private", nil, at("10.244.0.8"))
	ip := w.address("home", "web")
	w.has("home", "db", "west", "100.65.0.9")
	w.has("home", "db", w.homeID, "10.244.0.9")

	dns := one.dns(t)
	ctx := t.Context()
	below := "." + w.namespace + ".svc.clusterset.local."
	asked := func(name string) []string {
		found, err := dns.LookupHost(ctx, name)
		if err != nil {
			return []string{err.Error()}
		}
		slices.Sort(found)
		return found
	}
	has := func(name string, want ...string) {
		t.Helper()
		await.Until(t, name+" is "+strings.Join(want, ", "), func() bool { return slices.Equal(asked(name), want) },
			func() any { return asked(name) })
	}
	has("web"+below, ip)
	has("db"+below, "10.244.0.9", "100.65.0.9")
	has("db-0.west.db"+below, "100.65.0.9")
	has("db-0."+w.homeID+".db"+below, "10.244.0.9")
	has("private."+w.namespace+".svc.cluster.local.", mustIP(t, one, "private"))
	for _, none := range []string{"private", "db-0.east.db", "db-1.west.db", "nothing"} {
		_, err := dns.LookupHost(ctx, none+below)
		var no *net.DNSError
		require.ErrorAs(t, err, &no, none)
		assert.True(t, no.IsNotFound, "%s: %v", none, err)
	}
	_, found, err := dns.LookupSRV(ctx, "http", "tcp", "web"+below)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, uint16(80), found[0].Port)
	assert.Equal(t, "mcs-web."+w.namespace+".svc.cluster.local.", found[0].Target)

	// What is withdrawn has no name any more.
	there.withdraws(t, "web")
	await.Until(t, "web has no name any more", func() bool {
		_, err := dns.LookupHost(ctx, "web"+below)
		return err != nil && strings.Contains(err.Error(), "no such host")
	})
}

func mustIP(t *testing.T, s *side, name string) string {
	t.Helper()
	service := must.Get(t, s.Client().CoreV1().Services(s.namespace), name)
	return service.Spec.ClusterIP
}
