package kubelet

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKubeletRequestsBecomeThoseOfTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		path, query string
		want        string
		uid         string
		stream      bool
	}{
		"a log": {path: "/containerLogs/shop/db-0/postgres", query: "follow=true&tailLines=10&timestamps=true",
			want: "/api/v1/namespaces/there/pods/db-0/log?container=postgres&follow=true&tailLines=10&timestamps=true"},
		"a log of the container before": {path: "/containerLogs/shop/db-0/postgres", query: "previous=true&sinceSeconds=5&limitBytes=9&stream=Stdout",
			want: "/api/v1/namespaces/there/pods/db-0/log?container=postgres&limitBytes=9&previous=true&sinceSeconds=5&stream=Stdout"},
		"parameters that are not known stay here": {path: "/containerLogs/shop/db-0/postgres", query: "insecureSkipTLSVerifyBackend=true&x=1",
			want: "/api/v1/namespaces/there/pods/db-0/log?container=postgres"},
		"a command": {path: "/exec/shop/db-0/postgres", query: "command=sh&command=-c&command=a+%26%26+b%3D%3F&input=1&output=1&tty=1", stream: true,
			want: "/api/v1/namespaces/there/pods/db-0/exec?command=sh&command=-c&command=a+%26%26+b%3D%3F&container=postgres&stdin=true&stdout=true&tty=true"},
		"a command for one pod of that name": {path: "/exec/shop/db-0/some-uid/postgres", query: "command=ls&error=1", stream: true, uid: "some-uid",
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
