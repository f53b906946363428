package peer

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/discovery"
)

// announcing serves DNS on loopback: for each server, cluster west in example.com announces itself with its address, and with the hash.
func announcing(t *testing.T, hash string, servers ...string) discovery.Where {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg).SetReply(question)
		header := dns.RR_Header{Name: question.Question[0].Name, Rrtype: question.Question[0].Qtype, Class: dns.ClassINET}
		if header.Rrtype == dns.TypePTR {
			answer.Answer = []dns.RR{&dns.PTR{Hdr: header, Ptr: "west." + header.Name}}
		} else {
			for _, one := range servers {
				answer.Answer = append(answer.Answer, &dns.TXT{Hdr: header, Txt: []string{"server=" + one, "ca=" + hash}})
			}
		}
		_ = w.WriteMsg(answer)
	})}
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return discovery.Where{Domain: "example.com", DNSServer: packets.LocalAddr().String()}
}

func TestWhoeverAnnouncesTheNameTooGetsNoTokenAndIsNotInTheWay(t *testing.T) {
	// The certificate of a test server is its own authority.
	right := httptest.NewTLSServer(http.NotFoundHandler())
	defer right.Close()
	hash := cli.AuthorityHash(right.Certificate())
	o := &Options{Discovered: "west", RemoteCAHash: hash, token: "secret"}

	o.Where = announcing(t, hash, "https://127.0.0.1:1", right.URL)
	cluster, err := o.connectAnnounced(t.Context())
	require.NoError(t, err)
	assert.Equal(t, right.URL, cluster.Config.Host)
	assert.Equal(t, "west", cluster.Context)
	assert.Equal(t, "secret", cluster.Config.BearerToken)

	var asked, logins atomic.Int32
	wrong := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			logins.Add(1)
		}
	}))
	defer wrong.Close()
	// It announces the right hash, and shows its own certificate.
	o.RemoteCAHash = "sha256:" + strings.Repeat("0a", 32)
	o.Where = announcing(t, o.RemoteCAHash, wrong.URL)
	_, err = o.connectAnnounced(t.Context())
	assert.ErrorContains(t, err, "so the token was not sent")
	assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
	o.Where = announcing(t, o.RemoteCAHash, wrong.URL, right.URL)
	_, err = o.connectAnnounced(t.Context())
	assert.ErrorContains(t, err, `2 clusters announce themselves as "west" in domain example.com, and none is the one that its owner named`)
	assert.EqualValues(t, 2, asked.Load())
	assert.Zero(t, logins.Load())
}

func TestATokenIsReadFromAFile(t *testing.T) {
	for name, row := range map[string]struct{ content, want string }{
		"with the end of its line": {"abc.def\n", "abc.def"},
		"without one":              {"abc.def", "abc.def"},
		"nothing":                  {"\n", ""},
		"two lines":                {"abc\ndef\n", ""},
		"a kubeconfig":             {"apiVersion: v1", ""},
		"control characters":       {"abc\x1bdef", ""},
		"too much":                 {strings.Repeat("a", maxToken+1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(file, []byte(row.content), 0o600))
			token, err := readToken(file)
			assert.Equal(t, row.want, token)
			if row.want == "" {
				assert.ErrorContains(t, err, "has no token: it must have one line")
				assert.Equal(t, cli.Usage, cli.ExitCodeOf(err))
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
