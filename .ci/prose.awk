# Lists sentences that a reader may have to read twice, among the comments and documents that a diff adds.
#
#     git diff -U100000 HEAD | awk -f .ci/prose.awk        (the context tells which lines are code blocks)
#
# A sentence is flagged if it is longer than 38 words, if it opens with a pronoun in place of a noun, or if it contains
# one of the phrases below. A flag is a reason to read the sentence aloud, and no proof that it is bad. Lines that follow
# each other in the diff are one paragraph. The exit status is always 0.

BEGIN {
    # Matched in lower case, between blanks. A question may open as it likes.
    n = split("what|those|that|whose|who|whoever|whatever|whom|nobody|somebody|anybody|how many|how long|how much|" \
              "how often|how old|of one|of a|of an|of those|of its|of what|of the|of which|as where|as with|as to|" \
              "as for|as many|as long|so much|so many|one of|one that|one which|such|from where|with what|by what|" \
              "in what|than", list, "|")
    for (i = 1; i <= n; i++) openers[list[i]]
    split("came of it|come of it|comes to|came to|anew|to and fro|what stands|stands beside|stands in|stands there|" \
          "stands from|is told of|is told so|is told by|are told of|are told so|are told by|of which|with whom|" \
          "to whom|of whom|those that|those of|those who|those which|the one before|the one after|the one that|" \
          "the one who|the one of|that one|as it is to|as they are to|is to be|are to be|goes out|goes on|goes first|" \
          "goes in|goes by|given back|gives way|gives back|give way|at the most|at the least|as many as|in hand|" \
          "as far as|by turns|by hand|that there is|that there are|that there was|nobody else|whereof|wherein|" \
          "whereupon|came out of|comes out of|done without|makes good|is due|spoken", phrases, "|")
}

/^\+\+\+ / { end(); file = $2; sub(/^b\//, "", file); is_code = file ~ /\.(rs|lua)$/; is_text = file ~ /\.md$/; next }
/^@@ / { end(); line = substr($3, 2) + 0; is_fence = 0; next }
/^[+ ]/ {
    text = substr($0, 2)
    if (is_code && !sub(/^[ \t]*(\/\/[\/!]?|--+)[ \t]?/, "", text)) text = ""
    if (!is_code && !is_text) text = ""
    sub(/^[ \t]+/, "", text)
    if (text ~ /^```/) { is_fence = !is_fence; text = "" }
    if (is_fence || text ~ /^(#|\||<!--)/ || $0 ~ /^ /) text = ""
    if (text == "" || sub(/^[-*] /, "", text)) end()
    if (text != "") { if (paragraph == "") began = line; paragraph = paragraph " " text }
    line++
}
END { end(); printf "prose: %d flagged of %d new sentences\n", flagged, total }

# Ends a paragraph.
function end(    word, words, count, i, sentence) {
    count = split(paragraph, words, /[ \t]+/)
    for (i = 1; i <= count; i++) {
        word = words[i]
        if (sentence ~ /[.:;]$/ && word ~ /^[A-Z`\[*]/) { judge(sentence); sentence = "" }
        if (word != "") sentence = sentence == "" ? word : sentence " " word
    }
    judge(sentence)
    paragraph = ""
}

function judge(sentence,    why, count, words, low, i) {
    count = split(sentence, words, " ")
    if (count < 3) return
    total++
    low = tolower(sentence)
    gsub(/[^a-z0-9'`-]+/, " ", low)
    low = " " low " "
    if (count > 38) why = why ", " count " words"
    split(low, words, " ")
    if (sentence !~ /\?$/ && sentence ~ /^[A-Z]/ && (words[1] in openers || (words[1] " " words[2]) in openers))
        why = why ", opens with '" words[1] "'"
    for (i in phrases) if (index(low, " " phrases[i] " ")) why = why ", '" phrases[i] "'"
    if (why != "") { flagged++; printf "%s:%d: %s\n    %s\n", file, began, sentence, substr(why, 3) }
}
