package kubelet

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUsageIsAddedUp(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"), homePod("shop", "other", "home-1"))
	operator := f.authority.client(t, "a", "operators")
	measured := func(second int, cores, memory string) {
		f.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/namespaces/shop-h1/pods" ||
				r.URL.Query().Get("labelSelector") != "lodestone.dev/home=h1" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = fmt.Fprintf(w, `{"items":[{"metadata":{"name":"db-0"},"timestamp":"2026-01-01T00:00:%02dZ","containers":[
				{"name":"app","usage":{"cpu":%q,"memory":%q}},{"name":"stranger","usage":{"cpu":"9","memory":"9Gi"}}]},
				{"metadata":{"name":"other"},"timestamp":"2026-01-01T00:00:00Z","containers":[{"name":"app","usage":{"cpu":"1","memory":"1Mi"}}]}]}`,
				second, cores, memory)
		})
	}
	measured(0, "500m", "64Mi")
	_, body := f.get(t, "/metrics/resource", operator, nil)
	assert.Contains(t, body, `container_cpu_usage_seconds_total{container="app",namespace="shop",pod="db-0"} 0 1767225600000`)
	assert.Contains(t, body, `container_memory_working_set_bytes{container="app",namespace="shop",pod="db-0"} 6.7108864e+07 1767225600000`)
	assert.Contains(t, body, `container_start_time_seconds{container="app",namespace="shop",pod="db-0"} 1.7e+09`)
	assert.Contains(t, body, "resource_scrape_error 0\n")

	measured(10, "250m", "65Mi")
	f.get(t, "/metrics/resource", operator, nil)
	_, body = f.get(t, "/metrics/resource", operator, nil)
	assert.Contains(t, body, `container_cpu_usage_seconds_total{container="app",namespace="shop",pod="db-0"} 2.5 1767225610000`,
		"a sample counts once")
	assert.Contains(t, body, `pod_cpu_usage_seconds_total{namespace="shop",pod="db-0"} 2.5 1767225610000`)
	assert.Contains(t, body, `pod_memory_working_set_bytes{namespace="shop",pod="db-0"} 6.815744e+07`)
	assert.NotContains(t, body, `pod="other"`)
	assert.NotContains(t, body, "stranger")
}

func TestAClusterWithoutMetricsIsAnErrorInTheMetrics(t *testing.T) {
	f := newFixture(t, homePod("shop", "db-0", "west"))
	status, body := f.get(t, "/metrics/resource", f.authority.client(t, "a", "operators"), nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "resource_scrape_error 1\n")
	assert.NotContains(t, body, "container_")
}
