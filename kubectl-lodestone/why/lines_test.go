package why

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestFactsShowWhatDrewAPod(t *testing.T) {
	const gi = 1 << 30
	p := Pod{
		Pod: pod(on("home-1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		Extender: Said{Marks: []Mark{
			{Cluster: "home", Score: 7, Data: &Data{Bytes: 3 * gi, Of: 4.5 * gi}, Siblings: &Siblings{Pack: &Count{Here: 2, Of: 3}}, Room: &Room{}},
			{Cluster: "west", Score: 2, Data: &Data{Of: 4.5 * gi}, Siblings: &Siblings{Pack: &Count{Here: 1, Of: 3}, Spread: &Count{Of: 1}},
				Room: &Room{Class: "ssd", Free: 512 << 20, Asked: 100}},
		}},
	}
	answer := p.Of(setting())
	assert.Equal(t, `pod "web-1" runs on node "home-1"`, answer.Sentence)
	assert.Equal(t, []string{
		"pod shop/web-1: Running",
		"node home-1: Ready",
		"namespace shop: open to west",
		"extender: 7 of 10 for nodes of the home cluster: 3Gi of the pod's 4.5Gi of data; 2 of 3 volumes of its StatefulSet, which are to be " +
			"together; nobody knows how much room",
		`extender: 2 of 10 for nodes of cluster "west": 0 of the pod's 4.5Gi of data; 1 of 3 volumes of its StatefulSet, which are to be together; 0 of 1 volumes of its StatefulSet, which are to be spread; 512Mi free in class ssd, 100 asked for`,
	}, answer.Facts)
}

func TestSizesAreShort(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0", 1023: "1023", 1024: "1Ki", 1536: "1.5Ki", 1 << 30: "1Gi", 1 << 62: "4Ei", 1 << 70: "1024Ei",
	} {
		assert.Equal(t, want, size(bytes))
	}
}
