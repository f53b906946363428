package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// freshEach is after how many requests a worker hangs up and connects anew.
const freshEach = 5000

// worker makes requests one after another.
type worker struct {
	*soak
	client *http.Client
	buffer []byte
	made   int
}

func newWorker(s *soak) *worker {
	return &worker{soak: s, client: &http.Client{Transport: utilnet.SetTransportDefaults(&http.Transport{}), Timeout: 5 * time.Second}}
}

// request makes the i-th request of all. Two in a row are about one pod.
func (w *worker) request(ctx context.Context, i int) error {
	if w.made++; w.made%freshEach == 0 {
		w.client.CloseIdleConnections()
	}
	pod := i / 2
	variant := pod % len(w.templates.filter)
	switch {
	case i%malformedEach == 0:
		return w.post(ctx, w.templates.malformed[i/malformedEach%len(w.templates.malformed)], pod)
	case i%truncatedEach == 0:
		return w.hangUp(ctx, w.templates.filter[variant], 0.5)
	case i%vanishingEach == 0:
		return w.hangUp(ctx, w.templates.filter[variant], 1)
	case i%explainEach == 1:
		return w.explain(ctx, pod)
	case i%preemptEach == 1:
		return w.post(ctx, w.templates.preempt[variant], pod)
	case i%wholeEach == 2:
		return w.post(ctx, w.templates.whole, pod)
	case i%2 == 0:
		return w.post(ctx, w.templates.filter[variant], pod)
	}
	return w.post(ctx, w.templates.prioritize[variant], pod)
}

func (w *worker) post(ctx context.Context, t template, pod int) error {
	w.buffer = t.of(pod, w.buffer)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.extender.verbs+t.verb, bytes.NewReader(w.buffer))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		return fmt.Errorf("call %s: %w", t.verb, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", t.verb, err)
	}
	if response.StatusCode != t.want {
		return fmt.Errorf("%s answers %s instead of %d: %s", t.verb, response.Status, t.want, answer)
	}
	return nil
}

// hangUp sends this share of a request, and does not wait for the answer.
func (w *worker) hangUp(ctx context.Context, t template, share float64) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.extender.verbs)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: extender\r\nContent-Length: %d\r\n\r\n%s",
		t.verb, len(t.body), t.body[:int(float64(len(t.body))*share)])
	return errors.Join(err, connection.Close())
}

func (w *worker) explain(ctx context.Context, pod int) error {
	// Whether this pod is still remembered does not matter.
	url := fmt.Sprintf("%s/explain?namespace=%s&pod=database-%0*d", w.extender.status, largecluster.Namespace, len(number), pod-1)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for an explanation: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read an explanation: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return fmt.Errorf("the explanation is %s", response.Status)
	}
	return nil
}

// One in so many requests is something else than filter or prioritize.
const (
	malformedEach = 500
	truncatedEach = 501
	vanishingEach = 502
	preemptEach   = 50
	explainEach   = 1000
	wholeEach     = 2000
)

// number stands in templates for the number of a pod, so that each pod is another.
const number = "0000000000"

// template is a request for any pod.
type template struct {
	verb string
	body []byte
	// want is the status code of the right answer.
	want int
}

// of returns the request for a pod; it is made in buffer.
func (t template) of(pod int, buffer []byte) []byte {
	buffer = append(buffer[:0], t.body...)
	digits := strconv.Itoa(pod)
	for at := 0; ; {
		next := bytes.Index(buffer[at:], []byte(number))
		if next < 0 {
			return buffer
		}
		at += next + len(number)
		copy(buffer[at-len(digits):at], digits)
	}
}

// templates are the kinds of requests.
type templates struct {
	filter, prioritize, preempt, malformed []template
	// whole is a filter request with whole nodes.
	whole template
}

func newTemplates(names, claims int) (templates, error) {
	var t templates
	for _, mounted := range []int{0, 0, 1, 1, 1, 4} {
		pod := newPod(mounted, len(t.filter), claims)
		args := extenderv1.ExtenderArgs{Pod: pod, NodeNames: nodeNames(names, len(t.filter))}
		body, err := json.Marshal(args)
		if err != nil {
			return t, fmt.Errorf("encode request: %w", err)
		}
		t.filter = append(t.filter, template{verb: "/filter", body: body, want: http.StatusOK})
		t.prioritize = append(t.prioritize, template{verb: "/prioritize", body: body, want: http.StatusOK})
		t.malformed = append(t.malformed,
			template{verb: "/filter", body: body[:len(body)/2], want: http.StatusBadRequest},
			template{verb: "/prioritize", body: []byte(`{"Pod":{},"NodeNames":[1]}`), want: http.StatusBadRequest},
			template{verb: "/preempt", body: []byte(`not even JSON`), want: http.StatusBadRequest})
		victims := map[string]*extenderv1.MetaVictims{}
		for i, name := range *args.NodeNames {
			victims[name] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: fmt.Sprintf("victim-%d", i)}}}
		}
		if body, err = json.Marshal(extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: victims}); err != nil {
			return t, fmt.Errorf("encode request: %w", err)
		}
		t.preempt = append(t.preempt, template{verb: "/preempt", body: body, want: http.StatusOK})
	}
	nodes := &corev1.NodeList{}
	for i := range names {
		nodes.Items = append(nodes.Items, *largecluster.Node(i * largecluster.Nodes / names))
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: newPod(1, 0, claims), Nodes: nodes})
	if err != nil {
		return t, fmt.Errorf("encode request: %w", err)
	}
	t.whole = template{verb: "/filter", body: body, want: http.StatusOK}
	return t, nil
}

// nodeNames returns names from all over the cluster; another variant has others.
func nodeNames(names, variant int) *[]string {
	of := make([]string, names)
	for i := range of {
		of[i] = largecluster.NodeName((i*largecluster.Nodes/names + variant) % largecluster.Nodes)
	}
	return &of
}

// newPod returns a pod of ordinary size whose number is to be filled in.
func newPod(mounted, variant, claims int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: largecluster.Namespace, Name: "database-" + number, UID: types.UID("00000000-0000-4000-9000-00" + number),
		Labels:      map[string]string{"app.kubernetes.io/name": "database", "apps.kubernetes.io/pod-index": "0"},
		Annotations: map[string]string{keys.Near: largecluster.ClaimName(variant)},
	}}
	for i := range 3 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("container-%d", i), Image: "registry.example.com/team/database:16.4-bookworm",
			Env:       []corev1.EnvVar{{Name: "SETTING", Value: "a value of ordinary length"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		})
	}
	for i := range mounted {
		// Claims of one cluster each time: numbers that differ by tens of clusters.
		claim := (variant*7 + i*100) % claims
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: largecluster.ClaimName(claim)},
		}})
	}
	return pod
}
