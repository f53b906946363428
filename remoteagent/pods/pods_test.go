package pods

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

func TestNothingIsMadeFromWhatWasKnownLongAgo(t *testing.T) {
	for name, test := range map[string]struct {
		asOf time.Time
		made bool
	}{
		"known just now":                         {asOf: time.Now(), made: true},
		"known before this process was stopped":  {asOf: time.Now().Add(-time.Minute)},
		"known before the machine was suspended": {asOf: time.Now().Add(-time.Minute).Round(0)},
	} {
		t.Run(name, func(t *testing.T) {
			homes := cache.NewSharedIndexInformer(&cache.ListWatch{}, &remotev1alpha1.HomeCluster{}, 0, cache.Indexers{})
			require.NoError(t, homes.GetStore().Add(&remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"}}))
			client := fake.NewClientset()
			c := New(Config{Client: client, Sources: &sources.Sources{Homes: homes}})
			shadow := &remotev1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			shadow.Spec.Home.Cluster = "h1"
			err := c.create(t.Context(), &state{shadow: shadow, current: true, asOf: test.asOf})
			if test.made {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			_, err = client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
			assert.Equal(t, test.made, err == nil)
		})
	}
}
