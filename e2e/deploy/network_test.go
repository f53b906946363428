package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestPodsOfTheNetworkSayOnlyWhatTheyKnow has accounts of the network program, as whoever has taken them over, write what others say.
func TestPodsOfTheNetworkSayOnlyWhatTheyKnow(t *testing.T) {
	testbed.Require(t)
	apply(t, "network/program/crds")
	for _, file := range []string{"namespace", "agent-rights", "probe-rights", "status-rights"} {
		must.Kubectl(t, cluster, "", "apply", "--validate=strict", "-f", root+"network/program/"+file+".yaml")
	}
	t.Cleanup(func() {
		_, err := cluster.Kubectl(context.Background(), "", "delete", "--ignore-not-found", "-f", root+"network/program/status-rights.yaml")
		assert.NoError(t, err)
	})
	of := func(account, token, name string) *rest.Config {
		config := cluster.AdminConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + keys.NetworkNamespace + ":" + account,
			Groups: []string{"system:authenticated"}}
		if name != "" {
			config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/" + token: {name}}
		}
		return config
	}
	then := metav1.NewTime(time.Unix(1800000000, 0))
	gateway := func(name string, keys ...string) v1alpha1.GatewayStatus {
		return v1alpha1.GatewayStatus{Gateway: v1alpha1.Gateway{Name: name, Address: "192.0.2.1:7471", Keys: keys},
			RenewTime: then, Lanes: []v1alpha1.LaneStatus{{Gateway: "g", Up: true, Since: then}}}
	}
	probe := func(name, address string) v1alpha1.ProbeStatus {
		return v1alpha1.ProbeStatus{Name: name, Node: "n", Address: address, RenewTime: then, Paths: []v1alpha1.PathStatus{{Address: "10.1.0.9"}}}
	}
	const key, another = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA="
	before := v1alpha1.NetworkLinkStatus{ObservedGeneration: 1, PodCIDRs: []string{"10.1.0.0/16"},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted",
			LastTransitionTime: metav1.Now()}},
		Gateways: []v1alpha1.GatewayStatus{gateway("a", key), gateway("b", key)},
		Probes:   []v1alpha1.ProbeStatus{probe("p", "10.0.0.1"), probe("q", "10.0.0.2")},
	}
	admin, err := clients.NewNetworkLinks(cluster.AdminConfig(), keys.NetworkNamespace)
	require.NoError(t, err)
	link := &v1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec: v1alpha1.NetworkLinkSpec{PodCIDRs: []string{"10.1.0.0/16"}}}
	link = must.Create(t, admin, link)
	t.Cleanup(func() { assert.NoError(t, admin.Delete(context.Background(), link.Name, metav1.DeleteOptions{})) })

	agent, prober := of("lodestone-network", "node-name", "a"), of("lodestone-network-probe", "pod-name", "p")
	tries := 0
	await.Until(t, "the policy is in force", func() bool {
		now := must.Get(t, admin, link.Name)
		tries++ // what is written before it is in force is no change later
		now.Status = v1alpha1.NetworkLinkStatus{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", tries%256)}}
		client, err := clients.NewNetworkLinks(prober, keys.NetworkNamespace)
		require.NoError(t, err)
		_, err = client.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		return err != nil && strings.Contains(err.Error(), "lodestone-network-status") // and not that it has no rights yet
	})
	for name, row := range map[string]struct {
		by     *rest.Config
		change func(*v1alpha1.NetworkLinkStatus)
		denied bool
	}{
		"an agent of its own lanes":     {by: agent, change: func(s *v1alpha1.NetworkLinkStatus) { s.Gateways[0] = gateway("a", another) }},
		"an agent of ranges":            {by: agent, change: func(s *v1alpha1.NetworkLinkStatus) { s.PodCIDRs = []string{"10.2.0.0/16"} }},
		"an agent that another is gone": {by: agent, change: func(s *v1alpha1.NetworkLinkStatus) { s.Gateways = s.Gateways[:1] }},
		"an agent of another's key":     {agent, func(s *v1alpha1.NetworkLinkStatus) { s.Gateways[1].Keys = []string{another} }, true},
		"an agent of a gateway of none": {agent, func(s *v1alpha1.NetworkLinkStatus) {
			s.Gateways = append(s.Gateways, gateway("c", another))
		}, true},
		"an agent of probes": {agent, func(s *v1alpha1.NetworkLinkStatus) { s.Probes[0].Address = "10.0.0.9" }, true},
		"an agent of nobody's node": {of("lodestone-network", "", ""), func(s *v1alpha1.NetworkLinkStatus) {
			s.Gateways[0].Keys = []string{another}
		}, true},
		"a probe pod of its own":          {by: prober, change: func(s *v1alpha1.NetworkLinkStatus) { s.Probes[0] = probe("p", "10.0.0.3") }},
		"a probe pod that another is old": {by: prober, change: func(s *v1alpha1.NetworkLinkStatus) { s.Probes = s.Probes[:1] }},
		"a probe pod of another's":        {prober, func(s *v1alpha1.NetworkLinkStatus) { s.Probes[1].Address = "10.0.0.9" }, true},
		"a probe pod of a pod of none": {prober, func(s *v1alpha1.NetworkLinkStatus) {
			s.Probes = append(s.Probes, probe("r", "10.0.0.9"))
		}, true},
		"a probe pod of a gateway":     {prober, func(s *v1alpha1.NetworkLinkStatus) { s.Gateways[0].Keys = []string{another} }, true},
		"a probe pod that one is gone": {prober, func(s *v1alpha1.NetworkLinkStatus) { s.Gateways = s.Gateways[:1] }, true},
		"a probe pod of ranges":        {prober, func(s *v1alpha1.NetworkLinkStatus) { s.PodCIDRs = []string{"0.0.0.0/0"} }, true},
		"a probe pod of conditions":    {prober, func(s *v1alpha1.NetworkLinkStatus) { s.Conditions = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := must.Get(t, admin, link.Name)
			now.Status = *before.DeepCopy()
			now = must.UpdateStatus(t, admin, now)
			row.change(&now.Status)
			client, err := clients.NewNetworkLinks(row.by, keys.NetworkNamespace)
			require.NoError(t, err)
			_, err = client.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
			if !row.denied {
				assert.NoError(t, err)
				return
			}
			assert.True(t, apierrors.IsForbidden(err), "%v", err)
			assert.ErrorContains(t, err, "lodestone-network-status")
		})
	}
}
