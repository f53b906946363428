package probes

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

func TestEachAnswerCountsAndSilenceDoesNot(t *testing.T) {
	var asked []string
	refuses := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer refuses.Close()
	elsewhere := httptest.NewTLSServer(http.RedirectHandler("https://192.0.2.1/", http.StatusFound))
	defer elsewhere.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	c := &Controller{client: newClient()}
	c.client.Timeout = time.Second
	servers := map[string]bool{
		refuses.URL + "/": true,
		elsewhere.URL:     true, // It is not followed, and is an answer.
		"https://" + plain.Listener.Addr().String(): false,
		"https://" + silent.Addr().String():         false,
		"https://" + closed.Addr().String():         false,
		"https://a name that is none":               false,
	}
	var wanted []remotev1alpha1.ClusterProbe
	for server := range servers {
		wanted = append(wanted, remotev1alpha1.ClusterProbe{Cluster: server, Server: server})
	}
	answers := c.probe(t.Context(), wanted)
	for server, want := range servers {
		assert.Equal(t, want, answers[remotev1alpha1.ClusterProbe{Cluster: server, Server: server}], server)
	}
	assert.Equal(t, []string{"GET /livez "}, asked)
}

func TestResultsAreWrittenWhenTheyChangeAndWhileNothingAnswers(t *testing.T) {
	now := metav1.Unix(1_000_000, 0)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	west := remotev1alpha1.ClusterProbe{Cluster: "west", Server: "https://192.0.2.1:6443"}
	result := func(answers bool, at metav1.Time) []remotev1alpha1.ProbeResult {
		return []remotev1alpha1.ProbeResult{{Cluster: "west", Answers: answers, LastProbe: at}}
	}
	for name, row := range map[string]struct {
		before  []remotev1alpha1.ProbeResult
		answers bool
		want    []remotev1alpha1.ProbeResult
	}{
		"the first":                     {nil, true, result(true, now)},
		"it still answers":              {result(true, ago(time.Hour)), true, result(true, ago(time.Hour))},
		"it answers no more":            {result(true, ago(time.Second)), false, result(false, now)},
		"it answers again":              {result(false, ago(time.Second)), true, result(true, now)},
		"it does not for a while":       {result(false, ago(19*time.Second)), false, result(false, ago(19*time.Second))},
		"it does not for longer":        {result(false, ago(20*time.Second)), false, result(false, now)},
		"the clock was set back by far": {result(false, ago(-time.Hour)), false, result(false, now)},
	} {
		t.Run(name, func(t *testing.T) {
			home := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{Probes: []remotev1alpha1.ClusterProbe{west}}}
			home.Status.Probes = append(slices.Clone(row.before), remotev1alpha1.ProbeResult{Cluster: "gone", LastProbe: now})
			assert.Equal(t, row.want, results(home, map[remotev1alpha1.ClusterProbe]bool{west: row.answers}, now))
		})
	}
	home := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{
		Probes: []remotev1alpha1.ClusterProbe{{Cluster: "west", Server: "https://192.0.2.2:6443"}}}}
	home.Status.Probes = result(true, now)
	assert.Empty(t, results(home, map[remotev1alpha1.ClusterProbe]bool{west: true}, now), "that is of another server")
}
