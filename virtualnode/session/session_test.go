package session

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestASessionHasThePodRangesOfItsRemoteCluster(t *testing.T) {
	open := func(ranges ...string) (*Session, error) {
		return Open(&v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1alpha1.RemoteClusterSpec{
			PodNetwork: v1alpha1.Routed, PodCIDRs: ranges}}, &rest.Config{Host: "https://127.0.0.1:1"}, "h1")
	}
	s, err := open("10.1.0.0/16")
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.Routed, s.Network)
	assert.True(t, s.Ranges.Has(netip.MustParseAddr("10.1.2.3")))
	assert.False(t, s.Ranges.Has(netip.MustParseAddr("10.2.2.3")), "addresses of others")
	s, err = open()
	require.NoError(t, err)
	assert.Empty(t, s.Ranges, "they are not known")
	_, err = open("10.1.0.1/16")
	require.ErrorContains(t, err, "spec.podCIDRs")
}
