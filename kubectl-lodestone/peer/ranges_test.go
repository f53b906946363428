package peer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/podranges"
)

func TestPodRangesAreLearnedFromNodesAndKubeadm(t *testing.T) {
	node := func(ranges ...string) corev1.Node { return corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: ranges}} }
	const settings = "networking: {podSubnet: \"10.244.0.0/16,fd00:10::/48\"}"
	for name, test := range map[string]struct {
		nodes    []corev1.Node
		settings string
		want     string
	}{
		"nothing": {want: "[]"},
		"nodes": {nodes: []corev1.Node{node("10.244.1.0/24"), node("10.244.0.0/24"), node("10.244.0.0/24")},
			want: "[10.244.0.0/24 10.244.1.0/24]"},
		"an older field": {nodes: []corev1.Node{{Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}}}, want: "[10.244.1.0/24]"},
		"kubeadm": {nodes: []corev1.Node{node("10.244.1.0/24", "fd00:10:0:1::/64")}, settings: settings,
			want: "[10.244.0.0/16 fd00:10::/48]"},
		"kubeadm, out of date":  {nodes: []corev1.Node{node("10.9.1.0/24")}, settings: settings, want: "[10.9.1.0/24]"},
		"what cannot be read":   {nodes: []corev1.Node{node("all"), node("10.9.1.0/24")}, settings: ":", want: "[10.9.1.0/24]"},
		"nodes that tell lies":  {nodes: []corev1.Node{node("0.0.0.0/0")}, want: "[]"},
		"kubeadm without nodes": {settings: settings, want: "[10.244.0.0/16 fd00:10::/48]"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, "["+join(learn(test.nodes, test.settings))+"]")
		})
	}
}

func join(ranges podranges.Ranges) string {
	text := ""
	for i, one := range ranges {
		if i > 0 {
			text += " "
		}
		text += one.String()
	}
	return text
}

func TestOnlyTheUserGivesAClusterItsRanges(t *testing.T) {
	ranges := func(texts ...string) podranges.Ranges {
		parsed, err := podranges.Parse(texts)
		require.NoError(t, err)
		return parsed
	}
	west := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.Spec.PodNetwork = v1alpha1.Routed })
	east := remoteCluster("east", "east-uid", func(r *v1alpha1.RemoteCluster) { r.Spec.PodCIDRs = []string{"10.2.0.0/16"} })
	known := west
	known.Spec.PodCIDRs = []string{"10.1.0.0/16"}
	for name, test := range map[string]struct {
		have       *v1alpha1.RemoteCluster
		network    string
		given      []string
		says, note string
		code       cli.ExitCode
	}{
		"isolated":              {},
		"isolated, with ranges": {given: []string{"10.1.0.0/16"}, says: "give --pod-network Routed too", code: cli.Usage},
		"routed, without ranges": {network: "Routed",
			says: "it says itself that they are from 10.1.0.0/16; if that is right, add --pod-cidrs 10.1.0.0/16",
			code: cli.Usage},
		"confirmed":        {network: "Routed", given: []string{"10.1.0.0/16"}},
		"what is no range": {network: "Routed", given: []string{"10.1.0.1"}, says: "is no range of addresses", code: cli.Usage},
		"home's":           {network: "Routed", given: []string{"10.0.0.0/8"}, says: "overlaps with 10.0.0.0/16", code: cli.Refused},
		"another's":        {network: "Routed", given: []string{"10.2.7.0/24"}, says: `of RemoteCluster "east"`, code: cli.Refused},
		"too few": {network: "Routed", given: []string{"10.1.7.0/24"},
			note: "from 10.1.0.0/16, which is in none of --pod-cidrs"},
		"a peering from before":        {have: &west, note: "add --pod-cidrs 10.1.0.0/16"},
		"a peering that has them":      {have: &known},
		"new ranges for it":            {have: &known, given: []string{"10.1.0.0/16", "10.3.0.0/16"}},
		"ranges for one from before":   {have: &west, given: []string{"10.1.0.0/16"}},
		"routed anew, with its ranges": {have: &known, network: "Routed"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Plan{Name: "west", Remote: test.have}
			err := plan.chooseRanges(Options{PodNetwork: test.network, PodCIDRs: test.given}, Situation{RemoteContext: "west",
				Remotes:    []v1alpha1.RemoteCluster{west, east},
				HomeRanges: ranges("10.0.0.0/16"), RemoteRanges: ranges("10.1.0.0/16")})
			assert.Equal(t, test.code, cli.ExitCodeOf(err))
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
			}
			if test.note == "" {
				assert.Empty(t, plan.Notes)
			} else if assert.Len(t, plan.Notes, 1) {
				assert.Contains(t, plan.Notes[0], test.note)
			}
		})
	}
	plan := Plan{Name: "west"}
	err := plan.chooseRanges(Options{PodNetwork: "Routed"}, Situation{RemoteContext: "west"})
	require.ErrorContains(t, err, "ask whoever set up its pod network")
}
