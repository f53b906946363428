package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
