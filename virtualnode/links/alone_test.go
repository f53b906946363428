package links

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

func TestHomeAloneKnowsThatTheNetworkIsNotReady(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(home *networkv1alpha1.NetworkLink)
		reason string // empty: nothing is said
		says   string
	}{
		{"home's pods reach those there", func(*networkv1alpha1.NetworkLink) {}, "", ""},
		{"they do not", func(home *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].Paths[0] = networkv1alpha1.PathStatus{Message: "nobody answers"}
		}, "PathDown", "pod p of home, on node n, does not reach cluster west: nobody answers"},
		{"they did not, long ago", func(home *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].Paths[0].Up, home.Status.Probes[0].RenewTime = false, metav1.NewTime(now.Add(-2*time.Minute))
		}, "NotProbed", "no pod of home"},
		{"they did, long ago", func(home *networkv1alpha1.NetworkLink) {
			home.Status.Probes[0].RenewTime = metav1.NewTime(now.Add(-2 * time.Minute))
		}, "NotProbed", "no pod of home has probed the way to cluster west lately"},
	} {
		t.Run(row.name, func(t *testing.T) {
			home := side("h1", "10.1.0.9")
			row.change(home)
			condition := contradicted("west", home, now)
			if row.reason == "" {
				assert.Nil(t, condition)
				return
			}
			require.NotNil(t, condition)
			assert.Equal(t, row.reason, condition.Reason)
			assert.Equal(t, metav1.ConditionFalse, condition.Status)
			assert.Contains(t, condition.Message, row.says)
		})
	}
	assert.Equal(t, "NotProbed", contradicted("west", nil, now).Reason)
}

func TestHomeAlonePartsAndTakesBack(t *testing.T) {
	west := asking("west")
	west.Status.Conditions = []metav1.Condition{{Type: v1alpha1.NetworkReady, Status: metav1.ConditionTrue}}
	link := side("h1", "10.1.0.9")
	link.Status.Probes[0].RenewTime = metav1.NewTime(time.Now().Add(-time.Hour))
	link.Name, link.UID = "west", "u"
	link.TypeMeta = metav1.TypeMeta{APIVersion: networkv1alpha1.GroupVersion.String(), Kind: "NetworkLink"}
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			asked = append(asked, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "v1alpha1"):])
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPut {
			_ = json.NewEncoder(w).Encode(west)
			return
		}
		_ = json.NewEncoder(w).Encode(link)
	}))
	defer server.Close()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	l := &Linker{Metrics: metrics}
	l.Home, err = clients.NewNetworkLinks(&rest.Config{Host: server.URL}, "lodestone-network")
	require.NoError(t, err)
	l.Remotes, err = clients.NewRemoteClusters(&rest.Config{Host: server.URL})
	require.NoError(t, err)

	require.NoError(t, l.alone(t.Context(), west))
	assert.Equal(t, []string{"PUT v1alpha1/remoteclusters/west/status"}, asked)
	asked = nil
	west.Spec.PodNetwork = v1alpha1.Isolated
	require.NoError(t, l.alone(t.Context(), west))
	assert.Equal(t, []string{"DELETE v1alpha1/namespaces/lodestone-network/networklinks/west"}, asked)
	asked = nil
	west.Status.Conditions = nil
	require.NoError(t, l.alone(t.Context(), west))
	assert.Empty(t, asked, "there was no network")
}

func TestWhatAnotherClusterSaysOfItselfIsMadeToFit(t *testing.T) {
	link := side("w1", "10.2.0.9")
	gateway := func(change func(g *networkv1alpha1.Gateway)) {
		g := networkv1alpha1.Gateway{Name: "w2", Address: "w2:7473", Keys: []string{"k"}, MTU: 1500}
		change(&g)
		link.Status.Gateways = append(link.Status.Gateways, networkv1alpha1.GatewayStatus{Gateway: g})
	}
	gateway(func(g *networkv1alpha1.Gateway) { g.Name = "" })
	gateway(func(g *networkv1alpha1.Gateway) { g.Name = strings.Repeat("x", 254) })
	gateway(func(g *networkv1alpha1.Gateway) { g.Address = strings.Repeat("x", 264) })
	gateway(func(g *networkv1alpha1.Gateway) { g.MTU = 70000 })
	gateway(func(g *networkv1alpha1.Gateway) { g.MTU = -1 })
	gateway(func(g *networkv1alpha1.Gateway) { g.Name = "w1" })
	gateway(func(g *networkv1alpha1.Gateway) { g.Keys = []string{strings.Repeat("x", 45)} })
	gateway(func(g *networkv1alpha1.Gateway) {
		g.Keys = []string{"a", "a", strings.Repeat("x", 45), "b", "c", "d", "e"}
	})
	for _, address := range []string{strings.Repeat("x", 46), "fd00::1", "10.2.0.9", "10.2.0.10"} {
		link.Status.Probes = append(link.Status.Probes, networkv1alpha1.ProbeStatus{Address: address})
	}
	assert.Equal(t, []string{"10.2.0.9", "10.2.0.10"}, told(link, nil).Probes, "it takes no part in IPv6, so nobody tries that")
	link.Status.PodCIDRs = []string{"10.1.0.0/16", "fd00:1::/48"}
	spec := told(link, nil)
	assert.Equal(t, []networkv1alpha1.Gateway{{Name: "w1", Address: "w1:7473", Keys: []string{"k"}, MTU: 1500},
		{Name: "w2", Address: "w2:7473", Keys: []string{"a", "b", "c", "d"}, MTU: 1500}}, spec.Gateways)
	assert.Equal(t, []string{"10.2.0.9", "fd00::1", "10.2.0.10"}, spec.Probes)
}
