package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

func serve(t *testing.T) *Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer("home", listener)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// answer is what a server answered.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func get(t *testing.T, address string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{response.StatusCode, response.Header, body}
}

func TestEachFileIsServedWithItsTypeAndEachAnswerIsProtected(t *testing.T) {
	s := serve(t)
	files, err := static.ReadDir("static")
	require.NoError(t, err)
	names := []string{"", "nothing", "../server.go", "events/"}
	for _, file := range files {
		names = append(names, file.Name())
		require.NotEmpty(t, types[path.Ext(file.Name())], file.Name())
	}
	for _, name := range names {
		response := get(t, s.Address()+name)
		for header, value := range protections {
			assert.Equal(t, value, response.header.Get(header), "%s of %q", header, name)
		}
		switch kind := response.header.Get("Content-Type"); name {
		case "":
			assert.Equal(t, types[".html"], kind)
		case "nothing", "../server.go", "events/":
			assert.NotEqual(t, http.StatusOK, response.code, name)
		default:
			assert.Equal(t, types[path.Ext(name)], kind)
		}
	}
	refused := get(t, strings.TrimSuffix(s.Address(), s.guard.token+"/"))
	assert.Equal(t, http.StatusForbidden, refused.code)
	assert.Equal(t, "no-store", refused.header.Get("Cache-Control"))
}

func TestThePageNamesNoAddressOfOthers(t *testing.T) {
	for _, name := range []string{"index.html", "app.css", "app.js"} {
		content, err := static.ReadFile("static/" + name)
		require.NoError(t, err)
		for _, foreign := range []string{"http://", "https://", "//cdn", "innerHTML", "insertAdjacentHTML", "document.write", "eval(",
			" style=\""} {
			assert.NotContains(t, string(content), foreign, name)
		}
	}
}

// next returns the next update of a stream.
func next(t *testing.T, lines *bufio.Scanner) update {
	t.Helper()
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var u update
			require.NoError(t, json.Unmarshal([]byte(data), &u))
			return u
		}
	}
	require.FailNow(t, "the stream has ended", lines.Err())
	return update{}
}

func TestAPageGetsAllAndThenWhatChanges(t *testing.T) {
	s := serve(t)
	assert.Equal(t, http.StatusServiceUnavailable, get(t, s.Address()+"status.json").code, "nothing was read yet")
	shown := status.Status{Kind: "Status", Volumes: []status.Volume{{Namespace: "shop", Claim: "data", Phase: "Pending"}},
		Pods: []status.Pod{{Namespace: "shop", Name: "web-0"}}}
	s.Show(shown, "")

	var read status.Status
	require.NoError(t, json.Unmarshal(get(t, s.Address()+"status.json").body, &read))
	assert.Equal(t, shown.Pods, read.Pods)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Address()+"events", nil)
	require.NoError(t, err)
	stream, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer stream.Body.Close()
	assert.Equal(t, "text/event-stream", stream.Header.Get("Content-Type"))
	lines := bufio.NewScanner(stream.Body)
	first := next(t, lines)
	assert.True(t, first.Whole)
	assert.Contains(t, first.Volumes.Set, "shop/data/")
	assert.True(t, s.Watched())

	shown.Volumes = []status.Volume{{Namespace: "shop", Claim: "data", Name: "pvc-1", Phase: "Bound"}}
	s.Show(shown, "")
	second := next(t, lines)
	assert.False(t, second.Whole)
	assert.Nil(t, second.Head, "it is the same")
	assert.Equal(t, []string{"shop/data/"}, second.Volumes.Gone)
	assert.Contains(t, second.Volumes.Set, "shop/data/pvc-1")
	assert.Empty(t, second.Pods.Set)

	shown.Replicas = []replica.Copy{{Namespace: "shop", Name: "data-east", Claim: "data", Standby: "east"}}
	s.Show(shown, "")
	third := next(t, lines)
	assert.Nil(t, third.Head, "replicas are many")
	assert.Contains(t, third.Replicas.Set, "shop/data-east")
}

func TestNoMoreThanSoManyPagesAreServed(t *testing.T) {
	s := serve(t)
	for range mostPages {
		require.True(t, s.open())
	}
	assert.Equal(t, http.StatusServiceUnavailable, get(t, s.Address()+"events").code)
	for range mostPages {
		s.closed()
	}
	assert.False(t, s.Watched())
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	of := func(problem, phase string) *edition {
		volume := status.Volume{Namespace: "shop", Claim: "data", Name: "v", Phase: phase}
		e, err := newEdition("home", problem, status.Status{Volumes: []status.Volume{volume}})
		require.NoError(t, err)
		return e
	}
	for name, test := range map[string]struct {
		old, now *edition
		sent     bool
		head     bool
		volumes  int
	}{
		"nothing was sent yet":           {now: of("", "Bound"), sent: true, head: true, volumes: 1},
		"nothing changed":                {old: of("", "Bound"), now: of("", "Bound")},
		"a volume changed":               {old: of("", "Pending"), now: of("", "Bound"), sent: true, volumes: 1},
		"the cluster answers no longer":  {old: of("", "Bound"), now: of("no answer", "Bound"), sent: true, head: true},
		"the cluster answers once again": {old: of("no answer", "Bound"), now: of("", "Bound"), sent: true, head: true},
	} {
		t.Run(name, func(t *testing.T) {
			u, sent := test.now.since(test.old)
			assert.Equal(t, test.sent, sent)
			assert.Equal(t, test.head, u.Head != nil)
			assert.Len(t, u.Volumes.Set, test.volumes)
		})
	}
}

func TestOnlyThePageThatWasOpenedAtTheAddressIsServed(t *testing.T) {
	g := newGuard("secret", "127.0.0.1:8400")
	for name, test := range map[string]struct {
		method, host, path string
		site, origin       string
		wanted             string
		code               int
	}{
		"the page":                               {path: "/secret/"},
		"a file of it":                           {path: "/secret/app.js", wanted: "app.js"},
		"the page by the name of this machine":   {host: "LocalHost:8400", path: "/secret/"},
		"typed into the address bar":             {path: "/secret/", site: "none"},
		"what the page itself asks for":          {path: "/secret/events", site: "same-origin", wanted: "events"},
		"the page with its own origin":           {path: "/secret/", origin: "http://127.0.0.1:8400"},
		"no token":                               {path: "/", code: http.StatusForbidden},
		"a wrong token":                          {path: "/Secret/", code: http.StatusForbidden},
		"a part of the token":                    {path: "/secre/", code: http.StatusForbidden},
		"the token without a slash":              {path: "/secret", code: http.StatusForbidden},
		"the token further down":                 {path: "/x/secret/", code: http.StatusForbidden},
		"a name that was made to lead here":      {host: "evil.example:8400", path: "/secret/", code: http.StatusMisdirectedRequest},
		"another port":                           {host: "127.0.0.1:80", path: "/secret/", code: http.StatusMisdirectedRequest},
		"no port":                                {host: "127.0.0.1", path: "/secret/", code: http.StatusMisdirectedRequest},
		"another site":                           {path: "/secret/", site: "cross-site", code: http.StatusForbidden},
		"another port of this machine as a site": {path: "/secret/", site: "same-site", code: http.StatusForbidden},
		"another origin":                         {path: "/secret/", origin: "http://127.0.0.1:80", code: http.StatusForbidden},
		"an origin that hides its name":          {path: "/secret/", origin: "null", code: http.StatusForbidden},
		"something that would change":            {method: http.MethodPost, path: "/secret/", code: http.StatusMethodNotAllowed},
		"a question what is allowed":             {method: http.MethodOptions, path: "/secret/", code: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			if test.site != "" {
				header.Set("Sec-Fetch-Site", test.site)
			}
			if test.origin != "" {
				header.Set("Origin", test.origin)
			}
			if test.method == "" {
				test.method = http.MethodGet
			}
			if test.host == "" {
				test.host = "127.0.0.1:8400"
			}
			wanted, refusal, code := g.admit(test.method, test.host, test.path, header)
			assert.Equal(t, test.code, code)
			assert.Equal(t, test.wanted, wanted)
			assert.Equal(t, code != 0, refusal != "", refusal)
			assert.NotContains(t, refusal, "secret")
		})
	}
}

func TestTokensCannotBeGuessed(t *testing.T) {
	one := newToken()
	assert.Len(t, one, 48)
	assert.NotEqual(t, one, newToken())
}

func TestThePageIsServedOnLoopbackAlone(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		port    int
		want    string
		problem string
	}{
		"loopback":                  {address: "127.0.0.1", want: "127.0.0.1:0"},
		"another loopback address":  {address: "127.0.0.2", port: 80, want: "127.0.0.2:80"},
		"loopback of IPv6":          {address: "::1", port: 8400, want: "[::1]:8400"},
		"its name":                  {address: "localhost", port: 8400, want: "127.0.0.1:8400"},
		"all addresses":             {address: "0.0.0.0", problem: "is not a loopback address"},
		"all addresses of IPv6":     {address: "::", problem: "is not a loopback address"},
		"an address of the network": {address: "192.0.2.7", problem: "ssh -L"},
		"a name":                    {address: "example.com", problem: "is not a loopback address"},
		"nothing":                   {problem: "is not a loopback address"},
		"a negative port":           {address: "127.0.0.1", port: -1, problem: "--port -1 is not a port"},
		"a port too far":            {address: "127.0.0.1", port: 65536, problem: "give one from 1 to 65535"},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := loopback(test.address, test.port)
			if test.problem != "" {
				require.ErrorContains(t, err, test.problem)
				assert.Equal(t, cli.Usage, cli.ExitCodeOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, at)
		})
	}
}
