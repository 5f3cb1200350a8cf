package agents

import "unicode"

// Clip makes a device's text fit for a log line: printable, and of so many runes at most.
func Clip(s string, longest int) string {
	runes := []rune(s)
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = '?'
		}
	}
	return string(runes)
}
