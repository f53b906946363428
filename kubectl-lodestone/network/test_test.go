package network

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func endIn(name string, network v1alpha1.PodNetwork, transit v1alpha1.PodTransit) *end {
	return &end{name: name, remote: &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.RemoteClusterSpec{PodNetwork: network, PodTransit: transit}}}
}

func TestWhichClustersAreMeantToReachEachOther(t *testing.T) {
	home := &end{name: "home"}
	for name, row := range map[string]struct {
		a, b *end
		ok   bool
	}{
		"home and a remote one": {home, endIn("west", v1alpha1.Fabric, ""), true},
		"two that home joins": {endIn("east", v1alpha1.Fabric, v1alpha1.TransitEnabled),
			endIn("west", v1alpha1.Fabric, v1alpha1.TransitDirect), true},
		"two whose routes are joined": {endIn("east", v1alpha1.Routed, ""), endIn("west", v1alpha1.Routed, ""), true},
		"one does not ask for it": {endIn("east", v1alpha1.Fabric, v1alpha1.TransitEnabled),
			endIn("west", v1alpha1.Fabric, v1alpha1.TransitDisabled), false},
		"one is joined by routes": {endIn("east", v1alpha1.Routed, v1alpha1.TransitEnabled),
			endIn("west", v1alpha1.Fabric, v1alpha1.TransitEnabled), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := together(row.a, row.b); row.ok {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "set spec.podTransit of both RemoteClusters")
			}
		})
	}
}

func TestEachClusterReachesAPodByItsOwnAddress(t *testing.T) {
	west := endIn("west", v1alpha1.Fabric, v1alpha1.TransitEnabled)
	west.remote.Spec.HomePodTranslations = []networkv1alpha1.PodTranslation{{PodCIDR: "10.244.0.0/16", ReachedAs: "100.64.0.0/16"}}
	for _, row := range []struct {
		name     string
		from     *end
		pod, was string
		fails    string
	}{
		{"home", &end{name: "home"}, "10.244.1.2", "10.244.1.2", ""},
		{"a cluster for which home translates", west, "10.244.1.2", "100.64.1.2", ""},
		{"what is not translated", west, "100.66.1.2", "100.66.1.2", ""},
		{"what is taken for another pod", west, "100.64.1.2", "", "from cluster west another pod is reached by 100.64.1.2"},
		{"a pod without an address", west, "", "", "a pod has no address"},
	} {
		t.Run(row.name, func(t *testing.T) {
			reached, err := row.from.reaches(row.pod)
			assert.Equal(t, row.was, reached)
			if row.fails == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, row.fails)
			}
		})
	}
}
