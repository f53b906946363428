package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A quantity of longestQuantity bytes, with an exponent of longestExponent digits, says more than any resource needs.
const longestQuantity, longestExponent = 40, 2

// quantityFields are the fields of the template of a pod that are quantities, or maps of them.
var quantityFields = []string{"requests", "limits", "overhead", "sizeLimit", "divisor"}

// checkQuantities returns an error if a quantity in the JSON of a ShadowPodSpec would take long to read or to write: a few
// bytes of it can keep a processor busy for hours. It reads the JSON only if there may be one.
func checkQuantities(data []byte) error {
	if !mayBeCostly(data) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object any
	if err := decoder.Decode(&object); err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	return checkWithin(object, false)
}

// mayBeCostly reports whether a text has many digits in a row, an exponent, or characters that are not written as they are.
func mayBeCostly(data []byte) bool {
	digits, exponent := 0, false
	for i, c := range data {
		switch {
		case c >= '0' && c <= '9' || c == '.':
			digits++
			if digits > longestQuantity/2 || exponent && digits > longestExponent {
				return true
			}
		case (c == 'e' || c == 'E') && digits > 0:
			digits, exponent = 0, true
		case (c == '+' || c == '-') && exponent && digits == 0:
		case c == '\\' && i+1 < len(data) && data[i+1] == 'u':
			return true
		default:
			digits, exponent = 0, false
		}
	}
	return false
}

// checkWithin is checkQuantities of a value that was read; quantities says that it is one, or a map of them.
func checkWithin(value any, quantities bool) error {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if err := checkWithin(inner, quantities || slices.Contains(quantityFields, key)); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range value {
			if err := checkWithin(inner, quantities); err != nil {
				return err
			}
		}
	case json.Number:
		return checkQuantity(string(value), quantities)
	case string:
		return checkQuantity(value, quantities)
	}
	return nil
}

func checkQuantity(text string, quantity bool) error {
	if !quantity {
		return nil
	}
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(text) > longestQuantity || len(strings.TrimLeft(exponent, "+-")) > longestExponent {
		return fmt.Errorf("a quantity is longer than %d characters, or its exponent than %d digits", longestQuantity, longestExponent)
	}
	return nil
}
