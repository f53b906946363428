package kind

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiAndDNS are where the Services of the API and of DNS are.
var apiAndDNS = []string{"10.96.0.1/443", "10.96.0.10/53"}

// requireAnswers checks that home's node reaches Services, each given as address/port, within a few seconds.
func requireAnswers(ctx context.Context, t *testing.T, services ...string) {
	t.Helper()
	said, err := home.inNode(ctx, append([]string{"bash", "-c", `for s in "$@"; do
	  for try in 1 2 3 4 5 no; do
	    [ $try != no ] || { echo "$s"; exit; }
	    ! timeout 2 bash -c "</dev/tcp/$s" 2>/dev/null || break
	    sleep 0.5
	  done
	done`, "-"}, services...)...)
	require.NoError(t, err)
	require.Empty(t, said, "a Service that does not answer")
}

// fullSyncs returns how often home's kube-proxy has written all Services since it began.
func fullSyncs(ctx context.Context, t require.TestingT) int {
	said, err := home.inNode(ctx, "timeout", "30", "bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/10249
		printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
		sed -n 's/^kubeproxy_sync_full_proxy_rules_duration_seconds_count{.*IPv4.*} //p' <&3`)
	require.NoError(t, err)
	count, err := strconv.Atoi(strings.TrimSpace(said))
	require.NoError(t, err)
	return count
}

// TestServicesStayWhenKubeProxyWritesAllOfThemAnew has kube-proxy do what it does once an hour. It does so at once when the zone of its
// node changes.
func TestServicesStayWhenKubeProxyWritesAllOfThemAnew(t *testing.T) {
	const many = 60
	shop := namespace(t)
	manifests := redis(shop, "db", atHome)
	for i := range many {
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: %s, name: db-%d}\n"+
			"spec: {selector: {app: db}, ports: [{port: 6379}]}\n", shop, i)
	}
	home.apply(t, manifests)
	readyPod(t, shop, "db")
	made, err := home.client.CoreV1().Services(shop).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, made.Items, many)
	services := apiAndDNS
	for _, service := range made.Items {
		services = append(services, service.Spec.ClusterIP+"/6379")
	}
	requireAnswers(t.Context(), t, services...)

	zone := func(ctx context.Context, of string) {
		_, err := home.try(ctx, "", "label", "node", home.node, "--overwrite", corev1.LabelTopologyZone+"="+of)
		require.NoError(t, err)
	}
	t.Cleanup(func() { zone(context.Background(), "home") })
	// What is missing after one time may be there again after the next.
	for i := range 6 {
		before := fullSyncs(t.Context(), t)
		zone(t.Context(), fmt.Sprintf("another-%d", i))
		eventually(t, "kube-proxy has written all Services anew", func(c *assert.CollectT) {
			require.Greater(c, fullSyncs(t.Context(), c), before)
		})
		requireAnswers(t.Context(), t, services...)
	}
}
