package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

// get asks the endpoint and returns its answer.
func (f *fixture) get(t *testing.T, path string, certificate *tls.Certificate, headers map[string]string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url(path), nil)
	require.NoError(t, err)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls(certificate), DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestOnlyThoseWhoMayAreServed(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"))
	operator := f.authority.client(t, "kube-apiserver-kubelet-client", "operators")
	stranger := newAuthority(t).client(t, "kube-apiserver-kubelet-client", "operators")
	server := f.authority.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "a", Organization: []string{"operators"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	bearer := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }
	for name, test := range map[string]struct {
		path        string
		certificate *tls.Certificate
		headers     map[string]string
		want        int
	}{
		"nobody":                             {path: "/healthz", want: http.StatusUnauthorized},
		"nobody at the pods":                 {path: "/pods", want: http.StatusUnauthorized},
		"nobody at a page that is not there": {path: "/else", want: http.StatusUnauthorized},
		"a certificate of the cluster":       {path: "/healthz", certificate: operator, want: http.StatusOK},
		"a certificate of somebody else":     {path: "/healthz", certificate: stranger, want: http.StatusUnauthorized},
		"a server's certificate":             {path: "/healthz", certificate: server, want: http.StatusUnauthorized},
		"a certificate without a name": {path: "/healthz", certificate: f.authority.client(t, "", "operators"),
			want: http.StatusUnauthorized},
		"a user without rights": {path: "/healthz", certificate: f.authority.client(t, "somebody", "people"),
			want: http.StatusForbidden},
		"a user without rights at logs": {path: "/containerLogs/shop/db-0/app", certificate: f.authority.client(t, "somebody"),
			want: http.StatusForbidden},
		"a stranger's certificate beside a token": {path: "/metrics/resource", certificate: stranger, headers: bearer("scraper-token"),
			want: http.StatusUnauthorized},
		"a token":                         {path: "/metrics/resource", headers: bearer("scraper-token"), want: http.StatusOK},
		"a token at what it may not read": {path: "/pods", headers: bearer("scraper-token"), want: http.StatusForbidden},
		"a token that is not known":       {path: "/metrics/resource", headers: bearer("else"), want: http.StatusUnauthorized},
		"an empty token":                  {path: "/healthz", headers: bearer(""), want: http.StatusUnauthorized},
		"a password": {path: "/healthz", headers: map[string]string{"Authorization": "Basic b3BlcmF0b3I6eA=="},
			want: http.StatusUnauthorized},
		"headers of a proxy that nobody runs here": {path: "/healthz",
			headers: map[string]string{"X-Remote-User": "admin", "X-Remote-Group": "operators"}, want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := f.get(t, test.path, test.certificate, test.headers)
			assert.Equal(t, test.want, status, body)
		})
	}
	require.Len(t, f.seen(), 1, "only what was allowed reached the remote cluster")
	assert.Equal(t, "/apis/metrics.k8s.io/v1beta1/namespaces/shop-h1/pods", f.seen()[0].URL.Path)
}

func TestOnlyPodsOfTheNodeAreListed(t *testing.T) {
	ended := homePod("shop", "ended", "west")
	ended.Status.Phase = "Succeeded"
	f := newFixture(t, homePod("shop", "db-0", "west"), homePod("shop", "other", "home-1"), ended)
	operator := f.authority.client(t, "operator", "operators")
	status, all := f.get(t, "/pods", operator, nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, all, `"name":"db-0"`)
	assert.Contains(t, all, `"name":"ended"`)
	assert.NotContains(t, all, `"name":"other"`)
	_, alive := f.get(t, "/runningpods/", operator, nil)
	assert.Contains(t, alive, `"name":"db-0"`)
	assert.NotContains(t, alive, `"name":"ended"`)
}

func TestNothingIsChangedThroughTheEndpoint(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls(f.authority.client(t, "a", "operators")),
		DisableKeepAlives: true}}
	for _, test := range []struct{ method, path string }{
		{http.MethodDelete, "/containerLogs/shop/db-0/app"}, {http.MethodPost, "/containerLogs/shop/db-0/app"},
		{http.MethodPut, "/exec/shop/db-0/app?command=ls"}, {http.MethodPatch, "/portForward/shop/db-0"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, f.url(test.path), nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		assert.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode, "%s %s", test.method, test.path)
	}
	assert.Empty(t, f.seen())
}

func TestAnswersOnTokensAreBelievedForAWhile(t *testing.T) {
	a, now := newTokenCache(), time.Unix(1700000000, 0)
	_, ok := a.get("t", now)
	assert.False(t, ok)
	a.set("t", tokenOwner{user: &user{name: "scraper"}}, now)
	got, ok := a.get("t", now.Add(ownerAge-1))
	require.True(t, ok)
	assert.Equal(t, "scraper", got.user.name)
	_, ok = a.get("t", now.Add(ownerAge))
	assert.False(t, ok, "it is asked again")
}

func TestJunkDoesNotDriveOutWhatIsKnown(t *testing.T) {
	a, now := newTokenCache(), time.Unix(1700000000, 0)
	a.set("t", tokenOwner{user: &user{name: "scraper"}}, now)
	for i := range 2 * maxOwners {
		a.set("junk"+strconv.Itoa(i), tokenOwner{err: errors.New("nobody's")}, now)
	}
	assert.Len(t, a.owners, maxOwners)
	_, ok := a.get("t", now)
	assert.True(t, ok)
	for i := range 2 * maxOwners {
		a.set("good"+strconv.Itoa(i), tokenOwner{user: &user{}}, now)
	}
	assert.Len(t, a.owners, maxOwners)
}

func TestATokenIsAskedForOnce(t *testing.T) {
	f := newFixture(t)
	var asked atomic.Int32
	f.server.config.Judge.(*fake.Clientset).PrependReactor("create", "tokenreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		return false, nil, nil
	})
	for range 3 {
		status, _ := f.get(t, "/pods", nil, map[string]string{"Authorization": "Bearer scraper-token"})
		assert.Equal(t, http.StatusForbidden, status)
		status, _ = f.get(t, "/pods", nil, map[string]string{"Authorization": "Bearer junk"})
		assert.Equal(t, http.StatusUnauthorized, status)
	}
	assert.EqualValues(t, 2, asked.Load(), "once for each")
}

func TestAFloodOfTokensDoesNotKeepOutTheAPIServer(t *testing.T) {
	f := newFixture(t)
	for range maxTokenChecks {
		f.server.tokenChecks <- struct{}{}
	}
	status, body := f.get(t, "/healthz", nil, map[string]string{"Authorization": "Bearer scraper-token"})
	assert.Equal(t, http.StatusServiceUnavailable, status, body)
	status, body = f.get(t, "/healthz", f.authority.client(t, "kube-apiserver-kubelet-client", "operators"), nil)
	assert.Equal(t, http.StatusOK, status, body)
	<-f.server.tokenChecks
	status, _ = f.get(t, "/healthz", nil, map[string]string{"Authorization": "Bearer junk"})
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Len(t, f.server.tokenChecks, maxTokenChecks-1, "its place is free again")
}
