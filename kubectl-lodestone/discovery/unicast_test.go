package discovery

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve serves DNS on loopback, over UDP and TCP, and returns its address.
func serve(t *testing.T, handler dns.HandlerFunc) string {
	t.Helper()
	packets, listener := listenOnOnePort(t)
	for _, one := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		started := make(chan struct{})
		one.NotifyStartedFunc = func() { close(started) }
		go func() { _ = one.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = one.Shutdown() })
	}
	return packets.LocalAddr().String()
}

// listenOnOnePort listens on a port of loopback over UDP and TCP. A free port of one may be another's of the other, as when
// tests of other packages run: then it takes the next.
func listenOnOnePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		listener, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, listener
		}
		require.NoError(t, packets.Close())
	}
	t.Fatal("no port of loopback is free over both UDP and TCP")
	return nil, nil
}

// zoneOf answers with those of the records that are asked for, as a DNS server does.
func zoneOf(records ...dns.RR) dns.HandlerFunc {
	return func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg).SetReply(question)
		for _, record := range records {
			if record.Header().Rrtype == question.Question[0].Qtype && strings.EqualFold(record.Header().Name, question.Question[0].Name) {
				answer.Answer = append(answer.Answer, record)
			}
		}
		if len(answer.Answer) == 0 {
			answer.Rcode = dns.RcodeNameError
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			answer.Truncate(packet)
		}
		_ = w.WriteMsg(answer)
	}
}

// find asks a DNS server for what is announced in example.com.
func find(t *testing.T, server string) (Found, error) {
	t.Helper()
	where := Where{Domain: "example.com", DNSServer: server}
	require.NoError(t, where.Check())
	return where.Find(t.Context())
}

func TestAnnouncementsAreFoundInADomain(t *testing.T) {
	east := west()
	east.Name, east.Server, east.Classes = "east", "https://api.east.example.com:443", nil
	found, err := find(t, serve(t, zoneOf(append(west().records("example.com", zoneTTL), east.records("example.com", zoneTTL)...)...)))
	require.NoError(t, err)
	assert.Equal(t, Found{Announcements: []Announcement{east, west()}}, found)
}

func TestADomainWithoutAnnouncementsIsEmpty(t *testing.T) {
	found, err := find(t, serve(t, zoneOf()))
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestAnswersThatAreTooLargeForUDPComeOverTCP(t *testing.T) {
	var records []dns.RR
	for i := range maxNames {
		one := west()
		one.Name = fmt.Sprintf("c%02d", i)
		records = append(records, one.records("example.com", zoneTTL)...)
	}
	found, err := find(t, serve(t, zoneOf(records...)))
	require.NoError(t, err)
	assert.Len(t, found.Announcements, maxNames)
	assert.False(t, found.More)
}

func TestADNSServerThatMisbehavesIsSaid(t *testing.T) {
	for name, row := range map[string]struct {
		handler dns.HandlerFunc
		says    string
	}{
		"it refuses": {func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) },
			"answers REFUSED; see whether the domain is right, or give another DNS server with --dns-server"},
		"it answers another question": {func(w dns.ResponseWriter, q *dns.Msg) {
			other := new(dns.Msg).SetQuestion("mars.", dns.TypePTR)
			other.Id = q.Id
			_ = w.WriteMsg(new(dns.Msg).SetReply(other))
		}, "answers another question"},
		"it answers with a question": {func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(q) }, "answers another question"},
		"it sends what is no message": {func(w dns.ResponseWriter, q *dns.Msg) {
			content, _ := q.Pack()
			_, _ = w.Write(append(content[:4], strings.Repeat("\xff", 400)...))
		}, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := find(t, serve(t, row.handler))
			assert.ErrorContains(t, err, row.says)
			assert.Empty(t, found)
		})
	}
}

func TestAServerCannotSayOfANameWhatItWasNotAskedFor(t *testing.T) {
	records := append(west().records("example.com", zoneTTL), pointer("east."+zone("example.com")))
	answer := zoneOf(records...)
	found, err := find(t, serve(t, func(w dns.ResponseWriter, question *dns.Msg) {
		if !strings.HasPrefix(question.Question[0].Name, "east.") {
			answer(w, question)
			return
		}
		reply := new(dns.Msg).SetReply(question)
		reply.Answer = []dns.RR{texts("west", "server=https://192.0.2.66:6443", "ca="+other)}
		_ = w.WriteMsg(reply)
	}))
	require.NoError(t, err)
	assert.Equal(t, Found{Announcements: []Announcement{west()}, LeftOut: 1}, found)
}

func TestWhatIsNotAnnouncedIsSaid(t *testing.T) {
	where := Where{Domain: "example.com", DNSServer: serve(t, zoneOf(west().records("example.com", zoneTTL)...))}
	_, err := where.FindOne(t.Context(), "mars")
	assert.EqualError(t, err, `no cluster announces itself as "mars" in domain example.com; there is: west`)
	where.DNSServer = serve(t, zoneOf())
	_, err = where.FindOne(t.Context(), "mars")
	assert.ErrorContains(t, err, "no cluster announces itself in domain example.com: ask the owner")
}
