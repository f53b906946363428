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
