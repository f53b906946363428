package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// podMetrics is what is read of a PodMetrics object of metrics.k8s.io/v1beta1.
type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Timestamp  time.Time `json:"timestamp"`
	Containers []struct {
		Name  string `json:"name"`
		Usage struct {
			CPU    resource.Quantity `json:"cpu"`
			Memory resource.Quantity `json:"memory"`
		} `json:"usage"`
	} `json:"containers"`
}

// usage is the resource usage of the containers of pods. The remote cluster reports CPU as a rate,
// while kubelets report the total: so the rates are added up.
type usage struct {
	mu         sync.Mutex
	containers map[containerKey]*consumption
}

type containerKey struct {
	pod       types.UID
	container string
}

// consumption is the usage of one container: the total of CPU seconds, bytes of memory now, and the
// time of the last sample.
type consumption struct {
	seconds float64
	bytes   int64
	at      time.Time
}

// add adds a sample: cores is the CPU usage in the time since the last sample.
func (c *consumption) add(cores float64, bytes int64, at time.Time) {
	if !c.at.IsZero() && at.After(c.at) {
		c.seconds += cores * at.Sub(c.at).Seconds()
	}
	if at.After(c.at) {
		c.at, c.bytes = at, bytes
	}
}

// serveMetrics serves the metrics that metrics-server reads from a kubelet.
func (e *endpoint) serveMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	pods := slices.DeleteFunc(e.pods(), func(pod *corev1.Pod) bool { return !running(pod) })
	if err := e.sample(r.Context(), e.current(), pods); err != nil {
		writeMetric(w, "resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", sample{value: 1})
		return
	}
	e.usage.write(w, pods)
	writeMetric(w, "resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", sample{})
}

// sample reads the present usage of pods from the remote cluster.
func (e *endpoint) sample(ctx context.Context, s *session.Session, pods []*corev1.Pod) error {
	if s == nil {
		return fmt.Errorf("there is no connection to the cluster of node %s", e.node)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	byNamespace := map[string]map[string]*corev1.Pod{}
	for _, pod := range pods {
		if byNamespace[pod.Namespace] == nil {
			byNamespace[pod.Namespace] = map[string]*corev1.Pod{}
		}
		byNamespace[pod.Namespace][pod.Name] = pod
	}
	seen := map[containerKey]bool{}
	for namespace, named := range byNamespace {
		var list struct {
			Items []podMetrics `json:"items"`
		}
		raw, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces/"+s.Namespace(namespace)+"/pods").
			Param("labelSelector", keys.HomeID+"="+s.HomeID).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		if err != nil {
			return fmt.Errorf("read the metrics of cluster %s: %w", s.Cluster, err)
		}
		for i := range list.Items {
			if pod := named[list.Items[i].Metadata.Name]; pod != nil {
				e.usage.take(pod, &list.Items[i], seen)
			}
		}
	}
	e.usage.forget(seen)
	return nil
}

func (u *usage) take(pod *corev1.Pod, metrics *podMetrics, seen map[containerKey]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, container := range metrics.Containers {
		if !slices.Contains(containers(pod), container.Name) {
			continue
		}
		key := containerKey{pod: pod.UID, container: container.Name}
		seen[key] = true
		if u.containers[key] == nil {
			u.containers[key] = &consumption{}
		}
		u.containers[key].add(max(container.Usage.CPU.AsApproximateFloat64(), 0), max(container.Usage.Memory.Value(), 0), metrics.Timestamp)
	}
}

// forget removes the containers that no longer exist.
func (u *usage) forget(seen map[containerKey]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.containers, func(key containerKey, _ *consumption) bool { return !seen[key] })
}

// write writes the usage of pods in the format of a kubelet.
func (u *usage) write(w io.Writer, pods []*corev1.Pod) {
	var cpu, memory, started, podCPU, podMemory []sample
	u.mu.Lock()
	for _, pod := range pods {
		total := consumption{}
		for i := range pod.Status.ContainerStatuses {
			status := &pod.Status.ContainerStatuses[i]
			used := u.containers[containerKey{pod: pod.UID, container: status.Name}]
			if used == nil || status.State.Running == nil {
				continue
			}
			labels := fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", status.Name, pod.Namespace, pod.Name)
			cpu = append(cpu, sample{labels, used.seconds, used.at})
			memory = append(memory, sample{labels, float64(used.bytes), used.at})
			started = append(started, sample{labels: labels, value: float64(status.State.Running.StartedAt.Unix())})
			total.seconds += used.seconds
			total.bytes += used.bytes
			total.at = used.at
		}
		if !total.at.IsZero() {
			labels := fmt.Sprintf("{namespace=%q,pod=%q}", pod.Namespace, pod.Name)
			podCPU = append(podCPU, sample{labels, total.seconds, total.at})
			podMemory = append(podMemory, sample{labels, float64(total.bytes), total.at})
		}
	}
	u.mu.Unlock()
	writeMetric(w, "container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds", cpu...)
	writeMetric(w, "container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes", memory...)
	writeMetric(w, "container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds", started...)
	writeMetric(w, "pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds", podCPU...)
	writeMetric(w, "pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes", podMemory...)
}

// sample is one line of a metric.
type sample struct {
	labels string
	value  float64
	at     time.Time
}

func writeMetric(w io.Writer, name, kind, help string, samples ...sample) {
	if len(samples) == 0 {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, s := range samples {
		fmt.Fprintf(&text, "%s%s %g", name, s.labels, s.value)
		if !s.at.IsZero() {
			fmt.Fprintf(&text, " %d", s.at.UnixMilli())
		}
		text.WriteByte('\n')
	}
	_, _ = io.WriteString(w, text.String())
}
