package kubelet

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogsComeAsTheyAreWritten(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"))
	next := make(chan struct{})
	f.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, "second\n")
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url("/containerLogs/shop/db-0/app?follow=true"), nil)
	require.NoError(t, err)
	request.Header.Set("Cookie", "secret=1")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls(f.authority.client(t, "a", "operators"))}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "first\n", line)
	close(next)
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "second\n", line)

	require.Len(t, f.seen(), 1)
	assert.Equal(t, "/api/v1/namespaces/shop-h1/pods/db-0/log?container=app&follow=true", f.seen()[0].URL.String())
	assert.Equal(t, "Bearer "+remoteToken, f.seen()[0].Header.Get("Authorization"))
	assert.Empty(t, f.seen()[0].Header.Get("Cookie"))
}

// echoes answers an upgrade, and then says each line back until the stream ends.
func echoes(w http.ResponseWriter, r *http.Request) {
	connection, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	_, _ = fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: "+
		"v4.channel.k8s.io\r\n\r\n", r.Header.Get("Upgrade"))
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(connection, "echo "+line)
	}
}

// upgrade asks for a stream, with a token of home that must not travel.
func (f *fixture) upgrade(t *testing.T, method, path, protocol string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	connection, err := (&tls.Dialer{Config: f.tls(f.authority.client(t, "a", "operators"))}).DialContext(t.Context(), "tcp",
		strings.TrimPrefix(f.url(""), "https://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	_, err = fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nHost: west\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: "+
		"v4.channel.k8s.io\r\nAuthorization: Bearer home-secret\r\nImpersonate-User: admin\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		method, path, protocol)
	require.NoError(t, err)
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return connection, reader, response
}

func TestStreamsGoBothWaysUnchanged(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"))
	f.answers(echoes)
	for name, test := range map[string]struct{ method, path, protocol, want string }{
		"a command over SPDY": {method: "POST", path: "/exec/shop/db-0/app?command=sh&input=1&tty=1", protocol: "SPDY/3.1",
			want: "/api/v1/namespaces/shop-h1/pods/db-0/exec?command=sh&container=app&stdin=true&tty=true"},
		"a command over a WebSocket": {method: "GET", path: "/exec/shop/db-0/uid-of-db-0/init?command=sh&output=1", protocol: "websocket",
			want: "/api/v1/namespaces/shop-h1/pods/db-0/exec?command=sh&container=init&stdout=true"},
		"attaching": {method: "POST", path: "/attach/shop/db-0/app?input=1", protocol: "SPDY/3.1",
			want: "/api/v1/namespaces/shop-h1/pods/db-0/attach?container=app&stdin=true"},
		"ports": {method: "POST", path: "/portForward/shop/db-0", protocol: "SPDY/3.1", want: "/api/v1/namespaces/shop-h1/pods/db-0/portforward"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(f.seen())
			connection, reader, response := f.upgrade(t, test.method, test.path, test.protocol) //nolint:bodyclose // upgrade closes it
			require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
			assert.Equal(t, test.protocol, response.Header.Get("Upgrade"))
			assert.Equal(t, "v4.channel.k8s.io", response.Header.Get("X-Stream-Protocol-Version"))
			for _, line := range []string{"one\n", "two\n"} {
				_, err := io.WriteString(connection, line)
				require.NoError(t, err)
				back, err := reader.ReadString('\n')
				require.NoError(t, err)
				assert.Equal(t, "echo "+line, back)
			}
			seen := f.seen()[before]
			assert.Equal(t, test.want, seen.URL.String())
			assert.Equal(t, test.method, seen.Method)
			assert.Equal(t, []string{"Bearer " + remoteToken}, seen.Header.Values("Authorization"),
				"home's identity there, and no credentials of home")
			assert.Empty(t, seen.Header.Get("Impersonate-User"))
		})
	}
}

func TestStreamsOutliveTheirSessionAndEndWithTheEndpoint(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"))
	f.answers(echoes)
	const exec = "/exec/shop/db-0/app?command=sh&input=1"
	connection, reader, response := f.upgrade(t, "POST", exec, "SPDY/3.1") //nolint:bodyclose // upgrade closes it
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	f.server.Use("west", nil)
	f.session.Close()
	_, err := io.WriteString(connection, "still\n")
	require.NoError(t, err)
	back, err := reader.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "echo still\n", back)

	f.server.Close("west")
	require.NoError(t, connection.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = reader.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
}

func TestWhatCannotBePassedOnIsSaidInOneSentence(t *testing.T) {
	newcomer := homePod("shop", "new", "west")
	f := newFixture(t, homePod("shop", "db-0", "west"), homePod("shop", "elsewhere", "home-1"), newcomer, homePod("shop", "stolen", "west"),
		homePod("shop", "foreign", "west"))
	operator := f.authority.client(t, "a", "operators")
	f.mu.Lock()
	delete(f.pods, "/api/v1/namespaces/shop-h1/pods/new")
	f.pods["/api/v1/namespaces/shop-h1/pods/stolen"].Labels["lodestone.dev/pod-uid"] = "of-another-pod"
	f.pods["/api/v1/namespaces/shop-h1/pods/foreign"].Labels["lodestone.dev/home"] = "another"
	f.mu.Unlock()
	f.answers(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.RawQuery, "tailLines=1"):
			http.Redirect(w, r, "https://127.0.0.1:1/steal", http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/log"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","message":"container \"app\" is waiting to start"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	for name, test := range map[string]struct {
		path   string
		status int
		says   string
	}{
		"a pod of another node":       {path: "/containerLogs/shop/elsewhere/app", status: 404, says: "pod shop/elsewhere is not on node west"},
		"a pod that is not":           {path: "/containerLogs/shop/none/app", status: 404, says: "is not on node west"},
		"an earlier pod of the name":  {path: "/exec/shop/db-0/other-uid/app?command=ls", status: 404, says: "is not on node west"},
		"a container that is not":     {path: "/containerLogs/shop/db-0/none", status: 404, says: "has no container none"},
		"a pod that is not there yet": {path: "/containerLogs/shop/new/app", status: 404, says: "not there in cluster west yet"},
		"a pod there of another pod":  {path: "/containerLogs/shop/stolen/app", status: 404, says: "is not that of pod shop/stolen"},
		"a pod there of another home": {path: "/containerLogs/shop/foreign/app", status: 404, says: "is not that of pod shop/foreign"},
		"a path that is no pod":       {path: "/containerLogs/shop", status: 400, says: "names no pod"},
		"a page that is not":          {path: "/configz", status: 404, says: "has no such page"},
		"what the remote API server refuses": {path: "/containerLogs/shop/db-0/app", status: 400,
			says: `container "app" is waiting to start`},
		"what it refuses of a debug container": {path: "/containerLogs/shop/db-0/look", status: 400, says: `is waiting to start`},
		"a redirection":                        {path: "/containerLogs/shop/db-0/app?tailLines=1", status: 502, says: "not permitted"},
		"a stream without upgrade":             {path: "/exec/shop/db-0/app?command=ls", status: 502, says: "Upgrade request required"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := f.get(t, test.path, operator, nil)
			assert.Equal(t, test.status, status)
			assert.Contains(t, body, test.says)
			assert.NotContains(t, body, `"kind":"Status"`)
		})
	}
	f.remote.CloseClientConnections()
	f.remote.Listener.Close()
	status, body := f.get(t, "/containerLogs/shop/db-0/app", operator, nil)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "cluster west does not answer")
	f.server.Use("west", nil)
	status, body = f.get(t, "/containerLogs/shop/db-0/app", operator, nil)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "no connection to cluster west")
}

func TestKubeletRequestsBecomeThoseOfTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		path, query string
		want        string
		uid         string
		stream      bool
	}{
		"a log": {path: "/containerLogs/shop/db-0/postgres", query: "follow=true&tailLines=10&timestamps=true",
			want: "/api/v1/namespaces/there/pods/db-0/log?container=postgres&follow=true&tailLines=10&timestamps=true"},
		"a log of the container before": {path: "/containerLogs/shop/db-0/postgres",
			query: "previous=true&sinceSeconds=5&limitBytes=9&stream=Stdout",
			want:  "/api/v1/namespaces/there/pods/db-0/log?container=postgres&limitBytes=9&previous=true&sinceSeconds=5&stream=Stdout"},
		"parameters that are not known stay here": {path: "/containerLogs/shop/db-0/postgres", query: "insecureSkipTLSVerifyBackend=true&x=1",
			want: "/api/v1/namespaces/there/pods/db-0/log?container=postgres"},
		"a command": {path: "/exec/shop/db-0/postgres", query: "command=sh&command=-c&command=a+%26%26+b%3D%3F&input=1&output=1&tty=1",
			stream: true,
			want: "/api/v1/namespaces/there/pods/db-0/exec?command=sh" +
				"&command=-c&command=a+%26%26+b%3D%3F&container=postgres&stdin=true&stdout=true&tty=true"},
		"a command for one pod of that name": {path: "/exec/shop/db-0/some-uid/postgres", query: "command=ls&error=1", stream: true,
			uid:  "some-uid",
			want: "/api/v1/namespaces/there/pods/db-0/exec?command=ls&container=postgres&stderr=true"},
		"what is not asked for is not sent": {path: "/exec/shop/db-0/postgres", query: "command=ls&input=0&tty=", stream: true,
			want: "/api/v1/namespaces/there/pods/db-0/exec?command=ls&container=postgres"},
		"attaching": {path: "/attach/shop/db-0/postgres", query: "input=1&output=true&command=rm", stream: true,
			want: "/api/v1/namespaces/there/pods/db-0/attach?container=postgres&stdin=true&stdout=true"},
		"ports": {path: "/portForward/shop/db-0", query: "port=5432&port=80", stream: true,
			want: "/api/v1/namespaces/there/pods/db-0/portforward?ports=5432&ports=80"},
		"ports of one pod of that name": {path: "/portForward/shop/db-0/some-uid", stream: true, uid: "some-uid",
			want: "/api/v1/namespaces/there/pods/db-0/portforward"},
	} {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			require.NoError(t, err)
			c, ok, err := translate(test.path, query)
			require.NoError(t, err)
			require.True(t, ok)
			have := c.location("there")
			if len(c.query) > 0 {
				have += "?" + c.query.Encode()
			}
			assert.Equal(t, test.want, have)
			assert.Equal(t, "shop", c.namespace)
			assert.Equal(t, test.stream, c.stream)
			assert.Equal(t, test.uid, string(c.uid))
		})
	}
}

func TestPathsThatNameNoPodAreRefused(t *testing.T) {
	for name, path := range map[string]string{
		"no pod":                      "/exec/shop",
		"nothing":                     "/containerLogs/",
		"no container":                "/containerLogs/shop/db-0",
		"another subresource":         "/containerLogs/shop/db-0/exec/x/y",
		"a way out of the namespace":  "/exec/shop/..%2f..%2fsecrets/c",
		"a dot for a pod":             "/exec/shop/../c",
		"a query in the pod":          "/exec/shop/db-0?container=a/c",
		"capitals in the namespace":   "/exec/Shop/db-0/c",
		"a container that cannot be":  "/exec/shop/db-0/-c",
		"more than a UID for a port":  "/portForward/shop/db-0/uid/more",
		"an empty pod":                "/exec/shop//c",
		"a command that is not given": "/exec/shop/db-0/c",
	} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := translate(path, url.Values{})
			assert.True(t, ok)
			assert.Error(t, err)
		})
	}
}

func TestOtherPathsAreNotOfPods(t *testing.T) {
	for _, path := range []string{"/", "/run/shop/db-0/c", "/logs/syslog", "/stats/summary", "/configz", "/execs/shop/db-0/c"} {
		_, ok, err := translate(path, url.Values{})
		assert.False(t, ok, path)
		assert.NoError(t, err, path)
	}
}

func TestRightsThatRequestsNeed(t *testing.T) {
	for name, test := range map[string]struct {
		method, path string
		want         []string
	}{
		"logs":                        {method: "GET", path: "/containerLogs/a/b/c", want: []string{"get nodes/proxy"}},
		"a command":                   {method: "POST", path: "/exec/a/b/c", want: []string{"create nodes/proxy"}},
		"a command over a WebSocket":  {method: "GET", path: "/exec/a/b/c", want: []string{"create nodes/proxy"}},
		"attaching over a WebSocket":  {method: "GET", path: "/attach/a/b/c", want: []string{"create nodes/proxy"}},
		"a port over a WebSocket":     {method: "GET", path: "/portForward/a/b", want: []string{"create nodes/proxy"}},
		"metrics":                     {method: "GET", path: "/metrics/resource", want: []string{"get nodes/metrics"}},
		"pods":                        {method: "GET", path: "/pods", want: []string{"get nodes/pods", "get nodes/proxy"}},
		"health":                      {method: "GET", path: "/healthz", want: []string{"get nodes/healthz", "get nodes/proxy"}},
		"a method that is not common": {method: "PURGE", path: "/pods", want: []string{"purge nodes/pods", "purge nodes/proxy"}},
		"what there is not":           {method: "DELETE", path: "/else", want: []string{"delete nodes/proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			var have []string
			for _, a := range attributes("west", test.method, test.path) {
				assert.Equal(t, "west", a.Name)
				have = append(have, a.Verb+" "+a.Resource+"/"+a.Subresource)
			}
			assert.Equal(t, test.want, have)
		})
	}
}
