package decide

import "github.com/lodestone-storage/lodestone/pkg/keys"

func warn(reason, text string) *Message {
	return &Message{Warning: true, Reason: reason, Text: text}
}

func note(reason, text string) *Message {
	return &Message{Reason: reason, Text: text}
}

// where names a cluster in a sentence.
func where(cluster string) string {
	if cluster == keys.Home {
		return "the home cluster"
	}
	return "cluster " + cluster
}
